"""LengthGrouped: how lengths are cut into buckets, and what of them meets in a global batch."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastshard import DistributedBatchSampler, DistributedSampler, _reference_orders
from fastshard.orders import LengthGrouped, Shuffled

SKEWED = np.clip(np.random.default_rng(1).lognormal(4, 1, 3000).astype(int), 1, 2000)

lengths = st.lists(st.integers(0, 60), min_size=1, max_size=120) | st.builds(
    # Many at once: lists as Hypothesis draws them are mostly too short for several buckets.
    lambda n, most, seed: np.random.default_rng(seed).integers(0, most + 1, n).tolist(),
    st.integers(1, 150),
    st.integers(0, 60),
    st.integers(0, 99),
)
sizes = st.tuples(st.integers(1, 9), st.none()) | st.tuples(st.none(), st.integers(60, 400))
rules = st.fixed_dictionaries(
    {
        "num_replicas": st.integers(1, 5),
        "spread": st.sampled_from([0.0, 0.05, 0.3, 0.99]),
        "min_steps": st.integers(1, 4),
    }
)


def global_batches(order, epoch):
    """The ids of each global batch, what is left over last."""
    batches = [order.bucket_ids(epoch, *where).tolist() for where in order.steps(epoch, 0, order.num_steps)]
    return batches + [order.indices(epoch, len(order) - order.left_over).tolist()] * (order.left_over > 0)


@given(lengths=lengths, sizes=sizes, rules=rules, seed=st.integers(-5, 5), epoch=st.integers(0, 3))
def test_it_is_the_order_of_the_reference(lengths, sizes, rules, seed, epoch):
    order = LengthGrouped(lengths, *sizes, seed=seed, **rules)
    replicas, spread, min_steps = rules["num_replicas"], rules["spread"], rules["min_steps"]
    expected = _reference_orders.length_grouped(lengths, *sizes, replicas, seed, epoch, spread, min_steps)
    assert global_batches(order, epoch) == expected
    assert order.indices(epoch).tolist() == list(itertools.chain(*expected))


@given(data=st.data(), lengths=lengths, sizes=sizes, rules=rules, shuffle=st.booleans())
def test_any_stretch_is_that_of_the_whole_permutation_and_every_id_knows_its_position(
    data, lengths, sizes, rules, shuffle
):
    n = len(lengths)
    order = LengthGrouped(lengths, *sizes, shuffle=shuffle, **rules)
    whole = order.indices(2).tolist()
    assert sorted(whole) == list(range(n))
    start = data.draw(st.integers(0, n))
    stop, step = data.draw(st.integers(start, n)), data.draw(st.integers(1, n + 1) | st.just(2**63 - 1))
    assert order.indices(2, start, stop, step).tolist() == whole[start:stop:step]
    assert [order.position(2, sample) for sample in whole] == list(range(n))


@given(lengths=lengths, sizes=sizes, rules=rules)
def test_buckets_hold_neighbours_in_length_within_the_spread_or_of_the_fewest_steps(lengths, sizes, rules):
    order = LengthGrouped(lengths, *sizes, **rules)
    descending = sorted(lengths, reverse=True)
    assert sum(bucket.samples for bucket in order.buckets) == len(lengths)
    for bucket, after in itertools.zip_longest(order.buckets, order.buckets[1:]):
        mine = descending[bucket.start : bucket.start + bucket.samples]
        assert (bucket.longest, bucket.shortest) == (mine[0], mine[-1])
        assert bucket.batch_size == (sizes[0] or sizes[1] // max(1, bucket.longest))
        assert bucket.group == bucket.batch_size * rules["num_replicas"]
        if after:  # all but the last
            assert bucket.samples == bucket.steps * bucket.group
            assert after.first_step == bucket.first_step + bucket.steps
            few = bucket.steps == rules["min_steps"]
            assert few or bucket.longest - bucket.shortest <= int(rules["spread"] * bucket.longest)
            assert bucket.steps >= rules["min_steps"]
    assert 0 <= order.left_over < order.buckets[-1].group
    assert order.num_steps == sum(bucket.steps for bucket in order.buckets)


@pytest.mark.parametrize("sizes", [{"batch_size": 8}, {"max_tokens": 2500}])
def test_epochs_can_be_asked_for_in_any_turn(sizes):
    order = LengthGrouped(SKEWED, **sizes, num_replicas=2)
    expected = {epoch: LengthGrouped(SKEWED, **sizes, num_replicas=2).indices(epoch).tolist() for epoch in range(3)}
    for epoch in (0, 1, 0, 2, 1):
        assert order.indices(epoch).tolist() == expected[epoch]
        assert order.position(epoch, expected[epoch][1000]) == 1000


def test_global_batches_change_their_make_up_and_their_order_with_the_epoch():
    order = LengthGrouped(SKEWED, 8, num_replicas=4)
    first, second = global_batches(order, 0), global_batches(order, 1)
    assert {frozenset(batch) for batch in first}.isdisjoint(frozenset(batch) for batch in second)
    longest = [[max(SKEWED[i] for i in batch) for batch in batches] for batches in (first, second)]
    assert longest[0] != sorted(longest[0], reverse=True)
    assert abs(np.corrcoef(longest[0][:-1], longest[1][:-1])[0, 1]) < 0.3


def test_every_sample_of_a_bucket_meets_every_other_one_equally_often():
    order = LengthGrouped([7] * 12, 4, num_replicas=1, seed=3)
    assert [bucket.samples for bucket in order.buckets] == [12]
    met = np.zeros((12, 12), int)
    epochs = 4000
    for epoch in range(epochs):
        for batch in global_batches(order, epoch):
            met[np.ix_(batch, batch)] += 1
    expected = epochs * 3 / 11
    apart = met[~np.eye(12, dtype=bool)]
    assert (np.abs(apart - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("sizes", [{"batch_size": 8}, {"max_tokens": 2500}])
def test_unshuffled_is_sorted_the_longest_first_in_every_epoch(sizes):
    order = LengthGrouped(SKEWED, **sizes, num_replicas=2, shuffle=False)
    expected = sorted(range(len(SKEWED)), key=lambda i: (-SKEWED[i], i))
    assert order.indices(0).tolist() == order.indices(5).tolist() == expected
    assert order.reshuffles is False


def test_what_is_left_over_is_of_the_shortest_bucket_and_comes_after_a_whole_batch_of_it():
    order = LengthGrouped(SKEWED, 16, num_replicas=8)
    assert order.left_over == 3000 % 128
    last = order.buckets[-1]
    for epoch in range(5):
        tail = order.indices(epoch, len(order) - order.left_over - 128)
        assert (SKEWED[tail] <= last.longest).all()


@pytest.mark.parametrize(
    "given_lengths",
    [SKEWED.tolist(), tuple(SKEWED.tolist()), SKEWED.astype(np.uint64), SKEWED.astype(np.int16), torch.tensor(SKEWED)],
    ids=["list", "tuple", "uint64", "int16", "tensor"],
)
def test_lengths_come_in_any_kind_of_array(given_lengths):
    order = LengthGrouped(given_lengths, 8)
    assert order == LengthGrouped(SKEWED, 8)
    assert hash(order) == hash(LengthGrouped(SKEWED, 8))
    assert order.indices(1).tolist() == LengthGrouped(SKEWED, 8).indices(1).tolist()


def test_huge_lengths_are_cut_exactly():
    top = 2**63 - 1
    order = LengthGrouped([top, top - 1, top - 2**58, 3], max_tokens=top, spread=0.05, min_steps=1)
    assert [(bucket.samples, bucket.batch_size) for bucket in order.buckets] == [(3, 1), (1, top // 3)]
    assert sorted(order.indices(0).tolist()) == [0, 1, 2, 3]


def test_samples_without_length_count_as_one_token():
    order = LengthGrouped([0] * 10, max_tokens=4, num_replicas=1)
    assert [(bucket.batch_size, bucket.steps) for bucket in order.buckets] == [(4, 2)]
    assert order.left_over == 2


def test_orders_are_their_arguments():
    order = LengthGrouped(SKEWED, 8, num_replicas=2, seed=4, spread=0.1)
    for copied in (pickle.loads(pickle.dumps(order)), copy.deepcopy(order)):
        assert copied == order
        assert copied.indices(3).tolist() == order.indices(3).tolist()
    assert order != LengthGrouped(SKEWED, 8, num_replicas=2, seed=5, spread=0.1)
    assert LengthGrouped(SKEWED, np.int64(8), spread=np.float32(0.5)) == LengthGrouped(SKEWED, 8, spread=0.5)
    assert repr(LengthGrouped([1, 2], 8)) == (
        "LengthGrouped(lengths=<2 of uint8>, batch_size=8, max_tokens=None, num_replicas=1, seed=0, shuffle=True, "
        "spread=0.05, min_steps=2)"
    )
    assert len(pickle.dumps(order)) < 2 * len(SKEWED) + 500  # the lengths, in 16 bits, and no permutation
    mine = SKEWED.copy()
    kept = LengthGrouped(mine, 8)
    mine[:] = 1
    assert kept.indices(0).tolist() == LengthGrouped(SKEWED, 8).indices(0).tolist()


def test_the_order_of_one_number_of_ranks_can_be_dealt_to_another():
    """A job that goes on with other ranks keeps its order, and draws each sample once."""
    order = LengthGrouped(SKEWED, 8, num_replicas=4)
    for replicas in (2, 8):
        ranks = [
            DistributedBatchSampler(range(3000), 32 // replicas, replicas, r, order=order) for r in range(replicas)
        ]
        assert ranks[0].global_batch(5).tolist() == order.indices(0, 160, 192).tolist()
        spans = [np.ptp(SKEWED[batch]) for batch in ranks[1]]
        assert np.median(spans) < 5
    drawn = [i for r in range(3) for i in DistributedSampler(range(3000), 3, r, order=order)]
    assert sorted(drawn) == list(range(3000))


def test_permutations_of_buckets_and_other_orders_share_no_numbers():
    order = LengthGrouped([1] * 20 + [100] * 20, 5, min_steps=1, seed=1)
    assert [bucket.samples for bucket in order.buckets] == [20, 20]
    first, second = (order.bucket_ids(0, bucket, range(20)).tolist() for bucket in (0, 1))
    assert [i - 20 for i in first] != second
    assert Shuffled(20, 1).indices(0).tolist() not in ([i - 20 for i in first], second)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([3, 4],), ValueError, "give either batch_size or max_tokens, got batch_size=None, max_tokens=None"),
        (([3, 4], 2, 9), ValueError, "give either batch_size or max_tokens, got batch_size=2, max_tokens=9"),
        (([3, 4], 0), ValueError, r"batch_size must be in \[1, 2\^63\), got batch_size=0"),
        (([3, 4], 2.0), TypeError, r"batch_size must be an int, got batch_size=2\.0"),
        (([3, 4], None, 0), ValueError, r"max_tokens must be in \[1, 2\^63\), got max_tokens=0"),
        (([3, 4], None, "9"), TypeError, "max_tokens must be an int, got max_tokens='9'"),
        (
            ([3, 9, 4, 12], None, 8),
            ValueError,
            r"at least the longest length, 12, got max_tokens=8: lengths\[1\]=9 is longer, the first of 2",
        ),
        (([3, -4, -5], 2), ValueError, r"lengths must be in \[0, 2\^63\), got lengths\[1\]=-4"),
        ((np.array([1, 2**63], np.uint64), 2), ValueError, r"got lengths\[1\]=9223372036854775808"),
        (([], 2), ValueError, "lengths must have at least one sample, got none"),
        (([1.0, 2.0], 2), TypeError, r"lengths must be a 1-D array of ints, got lengths=\[1\.0, 2\.0\]"),
        (([True, False], 2), TypeError, "lengths must be a 1-D array of ints"),
        ((torch.ones(2, dtype=torch.bfloat16), 2), TypeError, "lengths must be a 1-D array of ints"),
        (("abc", 2), TypeError, "lengths must be a 1-D array of ints, got lengths='abc'"),
        (([[1, 2], [3]], 2), TypeError, "lengths must be a 1-D array of ints"),
        (([[1, 2], [3, 4]], 2), ValueError, r"lengths must have one dimension, got lengths of shape \(2, 2\)"),
        ((7, 2), ValueError, r"lengths must have one dimension, got lengths of shape \(\)"),
        (([3], 2, None, 0), ValueError, r"num_replicas must be in \[1, 2\^63\), got num_replicas=0"),
        (([3], 2, None, 1, 2**64), ValueError, "got seed=18446744073709551616"),
        (([3], 2, None, 1, 0, "no"), TypeError, "shuffle must be True or False, got shuffle='no'"),
        (([3], 2, None, 1, 0, True, 1.0), ValueError, r"spread must be in \[0, 1\), got spread=1\.0"),
        (([3], 2, None, 1, 0, True, float("nan")), ValueError, r"spread must be in \[0, 1\), got spread=nan"),
        (([3], 2, None, 1, 0, True, "a"), TypeError, "spread must be a number, got spread='a'"),
        (([3], 2, None, 1, 0, True, 0.1, 0), ValueError, r"min_steps must be in \[1, 2\^63\), got min_steps=0"),
    ],
)
def test_a_wrong_argument_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LengthGrouped(*arguments)
