"""Cursor: a place in an epoch, and the same place as Megatron counts it."""

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastshard import Cursor, DistributedBatchSampler, orders


@given(
    total=st.integers(1, 2**40), micro_batch=st.integers(1, 64), ranks=st.integers(1, 512), steps=st.integers(0, 2**40)
)
def test_consumed_samples_are_counted_as_megatrons_random_sampler_counts_them(total, micro_batch, ranks, steps):
    step = micro_batch * ranks
    active_total = total - total % step
    assume(active_total > 0)  # no step fits into an epoch, which Megatron refuses
    consumed_samples = steps * step
    cursor = Cursor.from_consumed_samples(consumed_samples, active_total)
    assert (cursor.epoch, cursor.consumed) == (consumed_samples // active_total, consumed_samples % active_total)
    assert cursor.consumed_samples(active_total) == consumed_samples


@given(epoch=st.integers(0, 2**64 - 1), per_epoch=st.integers(1, 2**63 - 1), data=st.data())
def test_a_place_within_an_epoch_comes_back(epoch, per_epoch, data):
    cursor = Cursor(epoch, data.draw(st.integers(0, per_epoch - 1)))
    assert Cursor.from_consumed_samples(cursor.consumed_samples(per_epoch), per_epoch) == cursor


def test_a_samplers_state_and_megatrons_count_are_the_same_place():
    """103 samples in global batches of 8: an epoch takes 96 and drops 7."""
    sampler = DistributedBatchSampler(range(103), 4, 2, 0, seed=3, drop_last=True)
    sampler.load_state_dict(sampler.state_dict() | dataclasses.asdict(Cursor.from_consumed_samples(2 * 96 + 40, 96)))
    assert sampler.global_batch(0).tolist() == orders.Shuffled(103, 3).indices(2, 40, 48).tolist()
    batches = iter(sampler)
    for taken in range(1, 8):
        next(batches)
        state = sampler.state_dict()
        assert Cursor(state["epoch"], state["consumed"]).consumed_samples(96) == 2 * 96 + 40 + 8 * taken
    assert (state["consumed"], list(batches)) == (103, [])


@pytest.mark.parametrize(
    ("consumed_samples", "samples_per_epoch", "message"),
    [
        (-1, 10, r"consumed_samples must be in \[0, .*\), got consumed_samples=-1"),
        (2**64 * 10, 10, "consumed_samples must be in"),
        (0, 0, "samples_per_epoch must be in .*, got samples_per_epoch=0"),
        (0, 2**63, "samples_per_epoch must be in"),
    ],
)
def test_a_count_outside_its_range_is_a_value_error(consumed_samples, samples_per_epoch, message):
    with pytest.raises(ValueError, match=message):
        Cursor.from_consumed_samples(consumed_samples, samples_per_epoch)


def test_a_count_that_is_no_int_is_a_type_error():
    with pytest.raises(TypeError, match=r"consumed_samples must be an int.*1\.5"):
        Cursor.from_consumed_samples(1.5, 10)
    with pytest.raises(TypeError, match="samples_per_epoch must be an int"):
        Cursor(1, 2).consumed_samples("10")
