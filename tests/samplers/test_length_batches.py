"""LengthBucketBatchSampler: batches of about the same length, as many and as dear on every rank."""

import inspect
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastshard import (
    EmptyRankWarning,
    EpochChangedError,
    LengthBucketBatchSampler,
    RepeatedEpochError,
    RepeatedEpochWarning,
    orders,
)
from fastshard.audit.coverage import measure_coverage

MODES = ["pad", "drop", "keep"]
SKEWED = np.clip(np.random.default_rng(1).lognormal(4, 1, 3000).astype(int), 1, 2000)
few_samples = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")

lengths = st.lists(st.integers(0, 60), min_size=1, max_size=120) | st.builds(
    # Many at once: lists as Hypothesis draws them are mostly too short for several buckets.
    lambda n, most, seed: np.random.default_rng(seed).integers(0, most + 1, n).tolist(),
    st.integers(1, 150),
    st.integers(0, 60),
    st.integers(0, 99),
)
sizes = st.tuples(st.integers(1, 9), st.none()) | st.tuples(st.none(), st.integers(60, 400))
options = st.fixed_dictionaries(
    {
        "uneven": st.sampled_from([None, *MODES]),
        "drop_last": st.booleans(),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 3),
        "spread": st.sampled_from([0.0, 0.05, 0.3]),
        "min_steps": st.integers(1, 3),
    }
)


def make_ranks(lengths, batch_size=None, max_tokens=None, num_replicas=2, epoch=0, **options):
    ranks = [
        LengthBucketBatchSampler(lengths, batch_size, max_tokens, num_replicas, r, **options)
        for r in range(num_replicas)
    ]
    for sampler in ranks:
        sampler.set_epoch(epoch)
    return ranks


def cost(lengths, batch):
    """Tokens of a padded batch."""
    return len(batch) * max(lengths[sample] for sample in batch)


def in_turn(ranks):
    """What all ranks draw in each step, in the order of global_batch: the ranks in turn."""
    for batches in itertools.zip_longest(*ranks, fillvalue=[]):
        yield [sample for slot in itertools.zip_longest(*batches) for sample in slot if sample is not None]


@few_samples
@given(lengths=lengths, sizes=sizes, num_replicas=st.integers(1, 6), options=options, epoch=st.integers(0, 3))
def test_ranks_have_as_many_batches_and_together_each_sample_as_uneven_says(
    lengths, sizes, num_replicas, options, epoch
):
    ranks = make_ranks(lengths, *sizes, num_replicas, epoch, **options)
    drawn = [list(sampler) for sampler in ranks]
    assert [len(sampler) for sampler in ranks] == [len(batches) for batches in drawn]
    assert all(batch for batches in drawn for batch in batches)

    order, uneven = ranks[0].order, ranks[0].uneven
    left = order.left_over
    hard = uneven == "keep" and 0 < left < num_replicas and (order.buckets[-1].batch_size == 1 or not order.num_steps)
    if not hard or options["drop_last"]:
        assert len({len(batches) for batches in drawn}) == 1
    for batches in itertools.zip_longest(*drawn, fillvalue=[]):
        assert max(map(len, batches)) - min(map(len, batches)) <= (uneven == "keep")

    flat = [[sample for batch in batches for sample in batch] for batches in drawn]
    coverage = measure_coverage(flat, [sampler.num_padding for sampler in ranks], len(lengths))
    assert coverage.overlap == 0
    if options["drop_last"]:
        rounded = left + -left % num_replicas if uneven == "pad" else left
        dropped = 0 if rounded >= order.buckets[-1].group else left
    else:
        dropped = left % num_replicas if uneven == "drop" else 0
    assert coverage.missing == dropped
    assert coverage.padded == (-left % num_replicas if uneven == "pad" and not dropped else 0)


@few_samples
@given(lengths=lengths, sizes=sizes, num_replicas=st.integers(1, 6), options=options, epoch=st.integers(0, 3))
def test_batches_keep_to_their_size_and_all_ranks_of_a_step_to_their_bucket(
    lengths, sizes, num_replicas, options, epoch
):
    ranks = make_ranks(lengths, *sizes, num_replicas, epoch, **options)
    batch_size, max_tokens = sizes
    drawn = [list(sampler) for sampler in ranks]
    bucket_of = np.repeat(np.arange(len(ranks[0].order.buckets)), [b.samples for b in ranks[0].order.buckets])
    place = {sample: p for p, sample in enumerate(sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)))}
    partial = 0
    for batches in itertools.zip_longest(*drawn, fillvalue=[]):
        here = {int(bucket_of[place[sample]]) for batch in batches for sample in batch}
        assert len(here) == 1
        bucket = ranks[0].order.buckets[here.pop()]
        partial += {len(batch) for batch in batches} != {bucket.batch_size}
        for batch in batches:
            assert len(batch) <= bucket.batch_size
            if batch:
                assert len(batch) * bucket.shortest <= cost(lengths, batch) <= len(batch) * bucket.longest
                assert batch_size is not None or cost(lengths, batch) <= max_tokens
    assert partial <= (2 if ranks[0].uneven == "keep" and ranks[0].order.left_over < num_replicas else 1)


@pytest.mark.parametrize("sizes", [{"batch_size": 8}, {"max_tokens": 2000}])
def test_costs_in_a_step_differ_by_no_more_than_the_spread_where_samples_are_many(sizes):
    lengths = np.random.default_rng(1).lognormal(4, 0.5, 20_000).astype(int) + 1
    ranks = make_ranks(lengths, **sizes, num_replicas=4, drop_last=True, spread=0.1)
    buckets = ranks[0].order.buckets
    many = [bucket.shortest >= 0.9 * bucket.longest for bucket in buckets]
    assert sum(bucket.samples for bucket, wide in zip(buckets, many, strict=True) if wide) > 0.9 * len(lengths)
    bucket_of = [bucket for bucket, _ in ranks[0].order.steps(0, 0, len(ranks[0]))]
    for bucket, *batches in zip(bucket_of, *ranks, strict=True):
        costs = [cost(lengths, batch) for batch in batches]
        assert max(costs) * buckets[bucket].shortest <= min(costs) * buckets[bucket].longest
        assert max(costs) * 0.9 <= min(costs) or not many[bucket]


@few_samples
@given(lengths=lengths, sizes=sizes, num_replicas=st.integers(1, 6), options=options, epoch=st.integers(0, 3))
def test_any_step_is_known_without_walking_there(lengths, sizes, num_replicas, options, epoch):
    ranks = make_ranks(lengths, *sizes, num_replicas, epoch, **options)
    steps = list(in_turn([list(sampler) for sampler in ranks]))
    asked = make_ranks(lengths, *sizes, num_replicas, epoch, **options)[-1]
    assert [asked.global_batch(step).tolist() for step in range(len(steps))] == steps
    found = {}
    for sample in range(len(lengths)):
        where = asked.where(sample)
        if where is not None:
            rank, step, slot = where
            assert (
                list(ranks[rank].order.bucket_ids(epoch, *asked._plan.steps(epoch, step, step + 1)[0]))[
                    rank + slot * num_replicas
                ]
                == sample
            )
        found[sample] = where
    drawn = set(itertools.chain(*steps))
    assert {sample for sample, where in found.items() if where is not None} == drawn


def test_a_sample_is_where_it_is_drawn():
    ranks = make_ranks(SKEWED, 8, num_replicas=4, epoch=2)
    batches = [list(sampler) for sampler in ranks]
    for sample in range(0, 3000, 7):
        rank, step, slot = ranks[0].where(sample)
        assert batches[rank][step][slot] == sample
    with pytest.raises(ValueError, match=r"id must be in \[0, 3000\), got id=3000"):
        ranks[0].where(3000)
    with pytest.raises(ValueError, match=r"step must be in \[0, 94\), got step=94"):
        ranks[0].global_batch(94)


def test_epochs_and_seeds_differ_and_ranks_agree():
    epochs = [
        list(in_turn(make_ranks(SKEWED, 16, num_replicas=4, epoch=e, seed=s))) for e in range(3) for s in range(3)
    ]
    for first, second in itertools.combinations(epochs, 2):
        assert first != second
        assert len({frozenset(b) for b in first} & {frozenset(b) for b in second}) <= 1
    assert epochs[4] == list(in_turn(make_ranks(SKEWED.tolist(), 16, num_replicas=4, epoch=1, seed=1)))


@pytest.mark.parametrize("left", range(1, 8))
def test_keep_makes_two_batches_where_one_would_leave_ranks_empty(left):
    """8 ranks, batches of 4, and fewer than 8 samples left over."""
    ranks = make_ranks([5] * (64 + left), 4, num_replicas=8, uneven="keep")
    drawn = [list(sampler) for sampler in ranks]
    assert [len(batches) for batches in drawn] == [3] * 8
    by_step = [[len(batches[step]) for batches in drawn] for step in range(3)]
    assert by_step[0] == [4] * 8
    assert [sum(step) for step in by_step[1:]] == [32 + left - (32 + left) // 2, (32 + left) // 2]
    assert min(map(min, by_step)) >= 2
    assert sorted(itertools.chain(*itertools.chain(*drawn))) == list(range(64 + left))


@pytest.mark.parametrize(("n", "batch_size"), [(9, 1), (3, 1), (3, 5)])
def test_keep_warns_where_ranks_must_have_fewer_batches(n, batch_size):
    with pytest.warns(
        EmptyRankWarning, match=f"{8 - n % 8} of 8 ranks get no sample in the last step, and a batch less"
    ):
        ranks = make_ranks([5] * n, batch_size, num_replicas=8, uneven="keep")
    assert [len(sampler) for sampler in ranks] == [n // 8 + (r < n % 8) for r in range(8)]
    assert [len(list(sampler)) for sampler in ranks] == [len(sampler) for sampler in ranks]


@pytest.mark.parametrize("options", [{"drop_last": True}, {"uneven": "drop"}])
def test_no_batch_on_any_rank_is_warned_about(options):
    with pytest.warns(
        EmptyRankWarning, match="no rank gets a batch: 3 samples are too few for 4 ranks with batch_size=2"
    ):
        sampler = LengthBucketBatchSampler([5, 6, 7], 2, None, 4, 0, **options)
    assert (len(sampler), list(sampler), sampler.global_batch(0).tolist()) == (0, [], [])
    assert sampler.where(1) is None


def test_padding_is_of_about_the_same_length():
    """2 samples are left for 4 ranks; torch would go on with the epoch's first ones, whose length may be any."""
    ranks = make_ranks([1000] * 16 + [3] * 18, 2, num_replicas=4)
    last = [list(sampler)[-1] for sampler in ranks]
    assert [len(batch) for batch in last] == [1] * 4
    assert all(sample >= 16 for batch in last for sample in batch)
    assert len(set(itertools.chain(*last))) == 4
    assert [sampler.num_padding for sampler in ranks] == [0, 0, 1, 1]


def test_one_giant_sample_spoils_one_bucket_only():
    lengths = [10] * 500 + [5000]
    (sampler,) = make_ranks(lengths, 10, num_replicas=1)
    assert [(bucket.samples, bucket.longest) for bucket in sampler.order.buckets] == [(20, 5000), (481, 10)]
    (sampler,) = make_ranks(lengths, max_tokens=5000, num_replicas=1)
    assert [(bucket.samples, bucket.batch_size) for bucket in sampler.order.buckets] == [(2, 1), (499, 500)]
    with pytest.raises(ValueError, match=r"got max_tokens=4999: lengths\[500\]=5000 is longer"):
        LengthBucketBatchSampler(lengths, None, 4999, 1, 0)


def test_batches_are_lists_of_int_or_arrays():
    lists, arrays = (make_ranks(SKEWED, 8, as_array=as_array)[1] for as_array in (False, True))
    found = list(lists)
    assert {type(batch) for batch in found} == {list}
    assert {type(sample) for batch in found for sample in batch} == {int}
    as_arrays = list(arrays)
    assert {(type(batch), batch.dtype) for batch in as_arrays} == {(np.ndarray, np.dtype(np.int64))}
    assert [batch.tolist() for batch in as_arrays] == found


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_takes_it_as_batch_sampler(workers):
    sampler = make_ranks(SKEWED, 8)[0]
    loader = DataLoader(torch.arange(3000), batch_sampler=sampler, num_workers=workers)
    assert len(loader) == len(sampler) == 188
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected = [sampler.global_batch(step)[::2].tolist() for step in range(188)]
        assert [batch.tolist() for batch in loader] == expected


def test_passes_are_counted_as_those_of_other_samplers():
    sampler = make_ranks(SKEWED, 8)[0]
    first = list(sampler)
    with pytest.warns(RepeatedEpochWarning, match="another pass over epoch 0"):
        assert list(sampler) == first
    sampler = make_ranks(SKEWED, 8, on_repeated_epoch="advance")[0]
    assert list(sampler) == first != list(sampler)
    assert sampler.epoch == 1
    sampler = make_ranks(SKEWED, 8, on_repeated_epoch="error")[0]
    running = iter(sampler)
    sampler.epoch = 3
    assert next(running) == sampler.global_batch(0)[::2].tolist()
    sampler.set_epoch(4)
    with pytest.raises(EpochChangedError):
        next(running)
    list(sampler)
    with pytest.raises(RepeatedEpochError):
        list(sampler)
    unshuffled = make_ranks(SKEWED, 8, shuffle=False)[0]
    assert list(unshuffled) == list(unshuffled)


def test_two_iterators_side_by_side_each_give_all_batches():
    sampler = make_ranks(SKEWED, 8)[0]
    pairs = list(zip(iter(sampler), iter(sampler), strict=True))
    assert len(pairs) == 188
    assert all(first == second for first, second in pairs)


def test_pickles_and_copies_continue_at_the_same_epoch_and_have_their_own():
    sampler = make_ranks(SKEWED, max_tokens=4000, epoch=5, seed=3)[1]
    other = pickle.loads(pickle.dumps(sampler))
    assert other.epoch == 5
    assert list(other) == list(sampler)
    other.set_epoch(6)
    assert sampler.epoch == 5


def test_arguments_are_where_the_neighbours_have_them():
    names = list(inspect.signature(LengthBucketBatchSampler).parameters)
    assert names[:8] == [
        "lengths", "batch_size", "max_tokens", "num_replicas", "rank", "shuffle", "seed", "drop_last",
    ]  # fmt: skip
    defaults = inspect.signature(orders.LengthGrouped).parameters
    for name in ("spread", "min_steps", "shuffle", "seed"):
        assert inspect.signature(LengthBucketBatchSampler).parameters[name].default == defaults[name].default


def test_what_the_batches_were_planned_by_cannot_be_changed():
    sampler = make_ranks(SKEWED, 8)[0]
    for name, value in (("batch_size", 16), ("rank", 1), ("drop_last", True), ("seed", 3)):
        with pytest.raises(AttributeError, match=f"{name} is fixed when the sampler is built, got {name}={value}"):
            setattr(sampler, name, value)
    assert (sampler.batch_size, sampler.rank, sampler.drop_last, sampler.seed) == (8, 0, False, 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 4}, ValueError, r"rank must be in \[0, 4\), got rank=4"),
        ({"rank": -1}, ValueError, r"rank must be in \[0, 4\), got rank=-1"),
        ({"num_replicas": 0}, ValueError, r"num_replicas must be in \[1, 2\^63\), got num_replicas=0"),
        ({"uneven": "padd"}, ValueError, "uneven must be one of 'pad', 'drop', 'keep', got uneven='padd'"),
        ({"drop_last": "no"}, TypeError, "drop_last must be True or False, got drop_last='no'"),
        ({"as_array": 2}, TypeError, "as_array must be True or False, got as_array=2"),
        ({"on_repeated_epoch": "x"}, ValueError, "on_repeated_epoch must be one of"),
        ({"batch_size": None}, ValueError, "give either batch_size or max_tokens"),
    ],
)
def test_a_wrong_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        LengthBucketBatchSampler(**{"lengths": [3, 4], "batch_size": 2, "num_replicas": 4, "rank": 1, **options})
