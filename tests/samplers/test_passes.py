"""What a pass over a sampler is: when it begins and ends, what set_epoch does to it, and who is warned."""

import copy
import gc
import threading
import warnings

import pytest
from torch.utils.data import DataLoader

from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    EmptyRankWarning,
    EpochChangedError,
    EpochChangedWarning,
    RepeatedEpochError,
    RepeatedEpochWarning,
)
from fastshard.samplers.distributed import CHUNK

LONG = 2 * (3 * CHUNK + 17)  # two ranks, several chunks each


def make(n=LONG, **options):
    return DistributedSampler(range(n), 2, 1, seed=3, **options)


def test_a_pass_draws_from_the_epoch_of_its_first_draw():
    sampler = make()
    passes = [iter(sampler) for _ in range(2)]
    for epoch, running in zip((4, 5), passes, strict=True):
        sampler.set_epoch(epoch)
        expected = sampler.indices().tolist()
        assert list(running) == expected


@pytest.mark.parametrize("draws", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 16])
def test_a_change_of_epoch_stops_a_running_pass_at_its_next_draw(draws):
    sampler = make()
    running = iter(sampler)
    for _ in range(draws):
        next(running)
    sampler.set_epoch(3)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(3\) was called while a pass over epoch 0 was running"):
        next(running)
    with pytest.raises(StopIteration):
        next(running)
    assert list(sampler) == sampler.indices().tolist()


@pytest.mark.parametrize("draws", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 16])
def test_a_change_of_epoch_that_is_taken_back_loses_no_draw(draws):
    sampler = make()
    running = iter(sampler)
    drawn = [next(running) for _ in range(draws)]
    for epoch in (1, 2, 0):
        sampler.set_epoch(epoch)
    assert drawn + list(running) == sampler.indices().tolist()


@pytest.mark.parametrize(("samples", "batch_size"), [(1000, 7), (1000, 1), (LONG, 1024), (LONG, LONG)])
def test_a_change_of_epoch_that_is_taken_back_loses_no_batch(samples, batch_size):
    batches = DistributedBatchSampler(range(samples), batch_size, 2, 0)
    expected = list(batches)
    batches.set_epoch(0)
    drawn = []
    for batch in batches:
        drawn.append(batch)
        batches.set_epoch(5)
        batches.set_epoch(0)
    assert drawn == expected


def test_a_change_of_epoch_after_the_last_draw_is_no_error():
    """As in a training loop that prepares the next epoch at the last batch of this one."""
    for sampler in (make(), make(16)):
        drawn = []
        expected = sampler.indices().tolist()
        for sample in sampler:
            drawn.append(sample)
            if len(drawn) == len(sampler):
                sampler.set_epoch(1)
        assert drawn == expected


@pytest.mark.parametrize("mode", ["warn", "error", "advance"])
def test_rebinding_a_loaders_iterator_is_a_repetition(mode):
    """Epochs cut short, with workers that draw for the new iterator before the old one is let go."""
    sampler = DistributedSampler(range(400), 1, 0, on_repeated_epoch=mode)
    loader = DataLoader(range(400), 4, sampler=sampler, num_workers=2)
    batches = iter(loader)
    first = next(batches).tolist()
    if mode == "advance":
        batches = iter(loader)
        assert sampler.epoch == 1
        assert next(batches).tolist() == sampler.indices(0, 4).tolist() != first
    else:
        with pytest.raises((RepeatedEpochWarning, RepeatedEpochError)):
            batches = iter(loader)


def test_a_late_change_of_epoch_warns_only_while_fetched_batches_are_left():
    sampler = DistributedSampler(range(6), 1, 0)
    loader = DataLoader(range(6), 2, sampler=sampler, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert len(list(loader)) == 3
    sampler.set_epoch(3)
    batches = iter(loader)
    next(batches)
    with pytest.warns(EpochChangedWarning, match="holds 2 batches of epoch 3"):
        sampler.set_epoch(4)


def test_a_copy_has_an_epoch_of_its_own():
    sampler = make()
    for copied in (copy.copy(sampler), copy.deepcopy(sampler)):
        copied.set_epoch(5)
        assert (sampler.epoch, copied.epoch) == (0, 5)


def test_a_subclass_may_set_its_epoch_before_the_constructor_runs_and_without_it():
    class Early(DistributedSampler):
        def __init__(self, *args):
            self.epoch = 7
            super().__init__(*args)

    class Without(DistributedSampler):
        def __init__(self):
            self.epoch = 7

    assert Early(range(10), 2, 0).epoch == 0
    assert Without().epoch == 7


def test_a_warning_points_at_the_line_that_led_to_it():
    with pytest.warns(EmptyRankWarning) as caught:
        DistributedSampler(range(2), 4, 0, uneven="keep")
    sampler = make(16)
    loader = DataLoader(range(16), sampler=sampler)
    list(loader)
    with pytest.warns(RepeatedEpochWarning) as repeated:
        list(loader)
    assert {warning.filename for warning in [*caught, *repeated]} == {__file__}


def test_a_change_of_epoch_does_not_stop_a_pass_that_is_over():
    sampler = make()
    assert len(list(sampler)) == LONG // 2
    sampler.set_epoch(3)
    assert len(list(sampler)) == LONG // 2


def test_a_change_of_epoch_stops_every_running_pass():
    sampler = make()
    passes = [iter(sampler) for _ in range(3)]
    for running in passes:
        next(running)
    sampler.set_epoch(1)
    for running in passes:
        with pytest.raises(EpochChangedError):
            next(running)


def test_a_pass_that_was_stopped_is_no_pass_over_the_new_epoch():
    sampler = make(on_repeated_epoch="error")
    running = iter(sampler)
    next(running)
    sampler.set_epoch(1)
    with pytest.raises(EpochChangedError):
        next(running)
    assert len(list(sampler)) == LONG // 2


def test_an_iterator_that_nobody_drew_from_is_no_pass():
    sampler = make(on_repeated_epoch="error")
    for _ in range(3):
        iter(sampler)
    assert len(list(sampler)) == LONG // 2


def test_the_warning_comes_once_and_says_what_to_do():
    sampler = make()
    list(sampler)
    with pytest.warns(RepeatedEpochWarning) as caught:
        list(sampler)
    text = str(caught[0].message)
    assert "another pass over epoch 0 repeats its order" in text
    assert "set_epoch" in text
    assert 'on_repeated_epoch="advance"' in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(sampler)


def test_returning_to_an_earlier_epoch_is_no_repetition():
    sampler = make(on_repeated_epoch="error")
    for epoch in (0, 1, 0, 0):
        sampler.set_epoch(epoch)
        assert list(sampler) == sampler.indices().tolist()


def test_an_error_raises_at_the_first_draw_of_every_further_pass():
    sampler = make(on_repeated_epoch="error")
    list(sampler)
    for _ in range(2):
        with pytest.raises(RepeatedEpochError):
            next(iter(sampler))


def test_advance_goes_on_from_the_epoch_that_was_set():
    sampler = make(on_repeated_epoch="advance")
    sampler.set_epoch(7)
    drawn = [list(sampler) for _ in range(3)]
    assert sampler.epoch == 9
    for epoch, ids in zip((7, 8, 9), drawn, strict=True):
        sampler.set_epoch(epoch)
        assert ids == sampler.indices().tolist()


def test_advance_beyond_the_last_epoch_is_refused_with_its_name():
    sampler = make(on_repeated_epoch="advance")
    sampler.set_epoch(2**64 - 1)
    list(sampler)
    with pytest.raises(ValueError, match=r"epoch must be in \[0, 2\^64\), got epoch=18446744073709551616"):
        list(sampler)


def test_passes_are_forgotten_when_they_are_over():
    sampler = make(on_repeated_epoch="ignore")
    for epoch in range(20):
        sampler.set_epoch(epoch)
        running = iter(sampler)
        next(running)
        del running
        list(sampler)
    gc.collect()
    assert sampler._passes._running == []


def test_set_epoch_from_another_thread_stops_the_pass():
    sampler = DistributedBatchSampler(range(LONG), 4, 2, 1)
    running = iter(sampler)
    next(running)
    other = threading.Thread(target=sampler.set_epoch, args=(5,))
    other.start()
    other.join()
    with pytest.raises(EpochChangedError):
        next(running)


@pytest.mark.parametrize("policy", ["advance", "error"])
def test_set_epoch_of_the_epoch_that_an_open_iterator_is_in_is_obeyed_by_the_next_pass(policy):
    sampler = DistributedSampler(range(20), 1, 0, on_repeated_epoch=policy)
    draws = iter(sampler)
    first = next(draws)
    sampler.set_epoch(0)
    draws = iter(sampler)  # lets go of the former one, which is over only now
    assert next(draws) == first
    assert sampler.epoch == 0
