"""A ledger that a loader writes into: right epochs pass at every step, wrong ones are told from them."""

import itertools
import json
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from fastshard import (
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    Ledger,
    LedgerError,
    LengthBucketBatchSampler,
    ShardedBatchSampler,
    WeightedDistributedSampler,
    orders,
)

quiet = pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")


def make(n=23, batch_size=4, *, exact=False, **options):
    return DataLoader(
        range(n), batch_size, sampler=DistributedSampler(range(n), 1, 0), ledger=Ledger(exact=exact), **options
    )


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_can_be_verified_after_each_batch_and_at_its_end(exact, num_workers):
    loader = make(exact=exact, num_workers=num_workers)
    for step, _ in enumerate(loader, 1):
        drawn = min(4 * step, 23)
        where = f" up to position {drawn}" if drawn < 23 else ""
        assert str(loader.ledger.verify()) == f"every one of the {drawn} samples{where} exactly once, 0 padded draws"
    loader.sampler.set_epoch(1)
    list(loader)
    assert loader.ledger.verify().epoch == 1


@quiet
@pytest.mark.parametrize("exact", [False, True])
@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 7),
    stops=st.lists(st.integers(0, 9), max_size=3),
    drop_last=st.booleans(),
)
def test_an_account_spans_any_number_of_restarts(exact, n, batch_size, stops, drop_last):
    assume(n >= batch_size or not drop_last)  # or there is no batch
    state = None
    for steps in [*stops, None]:
        loader = make(n, batch_size, exact=exact, drop_last=drop_last)
        if state is not None:
            loader.load_state_dict(state)
        loader.set_epoch(0)
        list(itertools.islice(loader, steps))
        state = saved(loader)
    report = loader.ledger.verify()
    dropped = n % batch_size if drop_last else 0
    assert (report.draws, report.padded, report.dropped) == (n - dropped, 0, dropped)
    assert (report.is_over, report.start) == (True, 0)


def test_a_sample_that_came_twice_and_one_that_did_not_are_named():
    class Wrong(DistributedSampler):
        def __iter__(self):
            ids = list(super().__iter__())
            ids[ids.index(7)] = 9
            return iter(ids)

    loader = DataLoader(range(23), 4, sampler=Wrong(range(23), 1, 0), ledger=Ledger(exact=True))
    list(loader)
    with pytest.raises(LedgerError, match=r"1 sample missing: 7; 1 sample drawn too often: 9") as caught:
        loader.ledger.verify()
    assert (caught.value.missing, caught.value.doubled) == ([7], [9])


def test_a_batch_that_is_lost_or_kept_from_the_ledger_is_missed():
    class Unreadable(list):
        def __getitem__(self, index):
            if index == 5:
                raise OSError("sample 5 is gone")
            return super().__getitem__(index)

    data = Unreadable(range(12))
    loader = DataLoader(data, 3, sampler=DistributedSampler(data, 1, 0, shuffle=False), ledger=Ledger())
    batches = iter(loader)
    next(batches)
    with pytest.raises(OSError, match="sample 5 is gone"):
        next(batches)
    assert len(list(batches)) == 2
    with pytest.raises(LedgerError, match="3 draws too few: 9 where there should be 12"):
        loader.ledger.verify()


def test_from_a_state_without_an_account_one_begins_at_its_place():
    state = make().sampler.state_at(3, 4)
    loader = make()
    loader.load_state_dict(state)
    list(loader)
    assert str(loader.ledger.verify()) == (
        "every one of the 11 samples from position 12 on exactly once, 0 padded draws"
    )


def test_a_pass_that_is_begun_anew_counts_once():
    loader = make()
    loader.sampler.on_repeated_epoch = "ignore"
    list(itertools.islice(loader, 3))
    list(loader)
    assert loader.ledger.verify().draws == 23


def lengths_sampler():
    return LengthBucketBatchSampler(np.arange(1, 51), batch_size=4, num_replicas=1, rank=0)


@pytest.mark.parametrize(
    ("batch_sampler", "n"),
    [
        (lambda: DistributedBatchSampler(range(50), 4, 1, 0, as_array=True), 50),
        (lengths_sampler, 50),
        (lambda: ShardedBatchSampler([[1, 2], [0], [4, 3]], num_replicas=1, rank=0), 5),
        (lambda: [[1, 2], [0], [4, 3]], 5),
    ],
    ids=["arrays", "by length", "dealt", "a list"],
)
def test_every_kind_of_batch_sampler_is_accounted_for(batch_sampler, n):
    def fresh():
        return DataLoader(np.arange(n), batch_sampler=batch_sampler(), ledger=Ledger(), collate_fn=list)

    loader = fresh()
    next(iter(loader))
    again = fresh()
    again.load_state_dict(saved(loader))
    list(again)
    assert str(again.ledger.verify()) == f"every one of the {n} samples exactly once, 0 padded draws"


def test_what_is_dropped_is_said_by_every_kind_also_when_a_job_comes_back_after_the_end():
    def lengths(drop_last):
        return LengthBucketBatchSampler(np.arange(1, 51), 4, num_replicas=1, rank=0, drop_last=drop_last, uneven="drop")

    kinds = {
        "2 dropped": lambda: DistributedBatchSampler(range(50), 4, 1, 0, drop_last=True),
        "2 of a length dropped": lambda: lengths(True),
        "none of a length dropped": lambda: lengths(False),
    }
    said = {}
    for name, batch_sampler in kinds.items():
        loader = DataLoader(np.arange(50), batch_sampler=batch_sampler(), ledger=Ledger(exact=True))
        list(itertools.islice(loader, len(loader)))  # nobody comes to be told the end
        state = saved(loader)
        again = DataLoader(np.arange(50), batch_sampler=batch_sampler(), ledger=Ledger(exact=True))
        again.load_state_dict(state)
        again.set_epoch(0)
        assert list(again) == []
        assert str(again.ledger.verify()) == str(loader.ledger.verify())
        said[name] = str(again.ledger.verify())
    assert said == {
        "2 dropped": "48 of the 50 samples exactly once, 0 padded draws, 2 dropped",
        "2 of a length dropped": "48 of the 50 samples exactly once, 0 padded draws, 2 dropped",
        "none of a length dropped": "every one of the 50 samples exactly once, 0 padded draws",
    }


def test_draws_by_weight_are_held_against_the_draws_that_there_should_be():
    sampler = WeightedDistributedSampler(np.arange(1.0, 11.0), 40, num_replicas=1, rank=0)
    loader = DataLoader(range(10), 3, sampler=sampler, ledger=Ledger(exact=True))
    list(loader)
    assert str(loader.ledger.verify()) == "every one of the 40 draws of weighted/1 exactly once, 0 padded draws"
    repeated = DistributedSampler(range(10), 1, 0, order=orders.Repeated(orders.Shuffled(10), 3))
    loader = DataLoader(range(10), 4, sampler=repeated, ledger=Ledger())
    list(loader)
    assert loader.ledger.verify().draws == 30


def test_a_stream_has_no_ids_to_write_down():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match="ledger must be None for an iterable dataset"):
        DataLoader(Stream(), ledger=Ledger())


def test_a_sampler_for_more_ranks_than_there_are_is_no_whole():
    loader = DataLoader(range(10), 5, sampler=DistributedSampler(range(10), 2, 0), ledger=Ledger())
    list(loader)
    with warnings.catch_warnings(), pytest.raises(ValueError, match=r"dealt to 2 ranks, .* add up 1"):
        loader.ledger.verify()
