"""Coverage: against a naive count, and on the situations that an audit is there to tell apart."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data.distributed import DistributedSampler as TorchSampler

from fastshard import DistributedSampler, orders
from fastshard.audit import Coverage, format_coverage, measure_coverage, problems, repeated_orders


def naive_counts(ids, num_padding, num_samples):
    """What `measure_coverage` counts, one draw after the other: the oracle."""
    seen, seen_as_padding = Counter(), Counter()
    for drawn, padding in zip(ids, num_padding, strict=True):
        for draw, id_ in enumerate(drawn):
            seen[id_] += 1
            seen_as_padding[id_] += draw >= len(drawn) - padding
    return {
        "num_samples": num_samples,
        "draws": sum(seen.values()),
        "distinct": len(seen),
        "padded": sum(seen_as_padding.values()),
        "missing": sum(id_ not in seen for id_ in range(num_samples)),
        "overlap": sum(count - seen_as_padding[id_] > 1 for id_, count in seen.items()),
        "only_padded": sum(count == seen_as_padding[id_] for id_, count in seen.items()),
    }


def counts(coverage):
    return {name: value for name, value in vars(coverage).items() if name != "digest"}


def coverage_of(ids, num_samples):
    """One padded epoch. torch's samplers don't say which draws are padding: the last ranks' last ones."""
    padded = sum(map(len, ids)) - num_samples
    return measure_coverage(ids, [int(rank >= len(ids) - padded) for rank in range(len(ids))], num_samples)


@st.composite
def epochs(draw):
    num_samples = draw(st.integers(1, 12))
    ids = draw(st.lists(st.lists(st.integers(0, num_samples - 1), max_size=12), max_size=4))
    num_padding = [draw(st.integers(0, len(drawn))) for drawn in ids]
    return ids, num_padding, num_samples


@given(epochs())
def test_counts_are_those_of_a_naive_count(epoch):
    ids, num_padding, num_samples = epoch
    measured = measure_coverage([np.array(drawn, np.int64) for drawn in ids], num_padding, num_samples)
    assert counts(measured) == naive_counts(ids, num_padding, num_samples)


@given(epochs(), epochs())
def test_digests_are_equal_exactly_where_every_rank_drew_the_same_ids_in_the_same_order(one, other):
    assert (measure_coverage(*one).digest == measure_coverage(*other).digest) == (one[0] == other[0])


@given(st.lists(st.permutations(range(3)), max_size=8))
def test_repeats_are_the_earlier_epochs_with_an_equal_order(permutations):
    measured = [measure_coverage([order[:2], order[2:]], [0, 0], 3) for order in permutations]
    assert repeated_orders(measured) == [permutations[:epoch].count(order) for epoch, order in enumerate(permutations)]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_every_padded_epoch_of_the_sampler_is_right(num_samples, num_replicas, epoch):
    samplers = [DistributedSampler(range(num_samples), num_replicas, rank) for rank in range(num_replicas)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    measured = measure_coverage([s.indices() for s in samplers], [s.num_padding for s in samplers], num_samples)
    assert problems([measured]) == []
    assert measured.padded == -num_samples % num_replicas


@pytest.mark.parametrize("sampler_class", [DistributedSampler, TorchSampler])
@pytest.mark.parametrize(("num_replicas", "draws", "padded"), [(4, 24, 1), (5, 25, 2)])
def test_padding_of_23_ids_is_no_overlap_though_ranks_share_a_sample(sampler_class, num_replicas, draws, padded):
    ids = [list(sampler_class(range(23), num_replicas, rank)) for rank in range(num_replicas)]
    assert counts(coverage_of(ids, 23)) == {
        "num_samples": 23,
        "draws": draws,
        "distinct": 23,
        "padded": padded,
        "missing": 0,
        "overlap": 0,
        "only_padded": 0,
    }
    assert set(ids[0]) & set(ids[-padded]) == {ids[0][0]}, "the first padded draw is the order's first sample"


def test_the_same_sharing_counts_as_overlap_where_it_is_not_declared_as_padding():
    samplers = [TorchSampler(range(23), 4, rank) for rank in range(4)]
    measured = measure_coverage([list(sampler) for sampler in samplers], [0, 0, 0, 0], 23)
    assert (measured.draws, measured.distinct, measured.padded, measured.overlap) == (24, 23, 0, 1)


def test_a_sample_drawn_three_times_overlaps_once_and_one_drawn_twice_by_a_rank_too():
    measured = measure_coverage([[7, 7, 0], [7, 1], [2, 2]], [0, 0, 0], 8)
    assert (measured.distinct, measured.missing, measured.overlap) == (4, 4, 2)


def test_torch_without_set_epoch_repeats_one_order_and_with_it_none():
    def three_epochs(*, set_epoch):
        samplers = [TorchSampler(range(22), 2, rank) for rank in range(2)]
        measured = []
        for epoch in range(3):
            for sampler in samplers:
                if set_epoch:
                    sampler.set_epoch(epoch)
            measured.append(coverage_of([list(sampler) for sampler in samplers], 22))
        return measured

    forgotten = three_epochs(set_epoch=False)
    assert repeated_orders(forgotten) == [0, 1, 2]
    assert problems(forgotten) == ["the order of an earlier epoch in epochs 1, 2"]
    assert [epoch.distinct for epoch in forgotten] == [22, 22, 22], "the job as a whole still sees everything"
    assert problems(three_epochs(set_epoch=True)) == []


def test_seeds_that_differ_between_ranks_give_overlap_and_as_many_samples_missing():
    ids = [list(DistributedSampler(range(1000), 2, rank, seed=rank)) for rank in range(2)]
    measured = coverage_of(ids, 1000)
    both = len(set(ids[0]) & set(ids[1]))
    assert both > 200, "of two independent halves about a quarter of all samples is in both"
    assert (measured.draws, measured.overlap, measured.missing) == (1000, both, both)


def test_slicing_what_is_sliced_already_shows_as_samples_missing():
    once = [DistributedSampler(range(64), 4, rank).indices() for rank in range(4)]
    twice = [ids[rank::4] for rank, ids in enumerate(once)]
    measured = measure_coverage(twice, [0] * 4, 64)
    assert (measured.draws, measured.distinct, measured.missing, measured.overlap) == (16, 16, 48, 0)


def test_dropping_shows_what_is_dropped():
    samplers = [DistributedSampler(range(23), 4, rank, drop_last=True) for rank in range(4)]
    measured = measure_coverage([sampler.indices() for sampler in samplers], [0] * 4, 23)
    assert problems([measured]) == ["3 samples missing in epoch 0"]


def test_a_real_draw_declared_as_padding_does_not_pass():
    measured = measure_coverage([[0, 1], [2, 3]], [0, 1], 4)
    assert (measured.missing, measured.overlap, measured.only_padded) == (0, 0, 1)
    assert problems([measured]) == ["1 sample seen as padding only in epoch 0"]


def test_memory_follows_the_draws_and_not_the_dataset():
    measured = measure_coverage([[2**62], [0]], [0, 0], 2**63 - 1)
    assert (measured.distinct, measured.missing) == (2, 2**63 - 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64, ">i8"])
def test_any_integer_dtype_and_layout_counts_and_digests_as_int64(dtype):
    ids = orders.Shuffled(100, 1).indices(0)
    same = [ids.astype(dtype)[::2], np.repeat(ids[1::2].astype(dtype), 3)[::3]]
    assert measure_coverage(same, [0, 0], 100) == measure_coverage([ids[::2], ids[1::2]], [0, 0], 100)


@pytest.mark.parametrize("id_", [-1, 10, 2**62])
def test_an_id_out_of_range_is_named_with_its_rank(id_):
    with pytest.raises(ValueError, match=rf"^ids must be in \[0, 10\), got {id_} on rank 1$"):
        measure_coverage([[0, 9], [3, id_, 4]], [0, 0], 10)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, r"ids\[0\] must be integers, got dtype float64", ([[0.5]], [0], 1)),
        (TypeError, r"ids\[0\] must be integers, got dtype bool", ([[True]], [0], 2)),
        (ValueError, r"ids\[1\] must have one dimension, got shape \(1, 2\)", ([[0], [[1, 2]]], [0, 0], 3)),
        (ValueError, r"num_padding must have one number per rank, 2, got 1", ([[0], [1]], [0], 2)),
        (ValueError, r"num_padding\[1\] must be in \[0, 2\), got num_padding\[1\]=2", ([[0], [1]], [0, 2], 2)),
        (ValueError, r"num_samples must be in \[1, 2\^63\), got num_samples=0", ([[]], [0], 0)),
    ],
)
def test_arguments_that_do_not_fit_are_named(error, message, arguments):
    with pytest.raises(error, match=f"^{message}$"):
        measure_coverage(*arguments)


NEW_DIGESTS = (number.to_bytes(8, "little") for number in itertools.count())


def fake(**changes):
    """Coverage of 1,437 samples on 2 ranks, all right but for `changes`; every digest is new unless given."""
    right = {"num_samples": 1437, "draws": 1438, "distinct": 1437, "padded": 1, "missing": 0, "overlap": 0}
    return Coverage(**{**right, "only_padded": 0, "digest": next(NEW_DIGESTS), **changes})


def test_the_table_is_aligned_and_fits_80_columns():
    table = format_coverage([fake(), fake(draws=1_281_167, missing=20, overlap=3, digest=b"x"), fake(digest=b"x")])
    assert table.splitlines() == [
        "                                              samples seen",
        "                  distinct  padded  samples   by two ranks    orders",
        "epoch      draws   samples   draws  missing  (not padding)  repeated",
        "    0      1,438     1,437       1        0              0         0",
        "    1  1,281,167     1,437       1       20              3         0",
        "    2      1,438     1,437       1        0              0         1",
        "wrong: 20 samples missing in epoch 1; 3 samples seen by two ranks, and not as padding, in epoch 1; "
        "the order of an earlier epoch in epoch 2",
    ]


@pytest.mark.parametrize(
    ("padded", "words"),
    [
        ([1], "every one of the 1,437 samples exactly once, 1 padded draw"),
        ([0], "every one of the 1,437 samples exactly once, 0 padded draws"),
        ([1, 1], "every one of the 1,437 samples exactly once, 1 padded draw, in each of 2 epochs; no order repeated"),
        (
            [1, 3],
            "every one of the 1,437 samples exactly once, 1 to 3 padded draws, in each of 2 epochs; no order repeated",
        ),
    ],
)
def test_the_last_line_says_that_all_is_right(padded, words):
    assert format_coverage([fake(padded=number) for number in padded]).splitlines()[-1] == words


def test_a_problem_of_many_epochs_stays_one_line():
    assert problems([fake(missing=2) for _ in range(5)]) == ["2 samples missing in epochs 0, 1, 2, 3, 4"]
    assert problems([fake(missing=2) for _ in range(100)]) == ["2 samples missing in 100 epochs (0, 1, 2, ..., 99)"]
    differing = [fake(overlap=overlap) for overlap in (1348, 0, 1, 359)]
    assert problems(differing) == ["1 to 1,348 samples seen by two ranks, and not as padding, in epochs 0, 2, 3"]


def test_a_table_of_nothing_or_of_two_datasets_is_an_error():
    with pytest.raises(ValueError, match=r"got datasets of sizes \[\]"):
        format_coverage([])
    with pytest.raises(ValueError, match=r"got datasets of sizes \[1436, 1437\]"):
        format_coverage([fake(), fake(num_samples=1436)])
