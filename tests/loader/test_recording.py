"""What a loader writes into its ledger."""

import itertools
import sys
from pathlib import Path

import pytest
from torch.utils.data import Dataset

from fastshard import (
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    Ledger,
    LedgerError,
    LengthBucketBatchSampler,
    ShardedBatchSampler,
    StateMismatchError,
    orders,
)

sys.path.append(str(Path(__file__).parents[1] / "ledger"))
from ranks import verify_together


@pytest.mark.parametrize(
    ("length", "num_replicas", "batch_size"), [(5, 2, 1), (7, 3, 2), (3, 5, 2), (13, 4, 3), (1, 2, 4)]
)
@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
def test_ranks_that_get_a_batch_less_verify_at_the_end_and_in_every_step(length, num_replicas, batch_size):
    ledgers = [Ledger(exact=True) for _ in range(num_replicas)]
    passes = []
    for rank, ledger in enumerate(ledgers):
        sampler = DistributedSampler(range(length), num_replicas, rank, uneven="keep")
        passes.append(iter(DataLoader(range(length), batch_size, sampler=sampler, ledger=ledger)))
    said = []
    for _ in range(len(passes[0])):
        for batches in passes:
            next(batches, None)
        said.append({str(report) for report in verify_together(ledgers)})
    assert not [batch for batches in passes for batch in batches]  # each is told its end
    each = "samples" if length > 1 else "sample"
    assert {str(report) for report in verify_together(ledgers)} == {
        f"every one of the {length} {each} exactly once, 0 padded draws"
    }
    assert not [report for step in said for report in step if "exactly once" not in report]


def test_a_finished_epoch_that_dropped_samples_verifies_after_a_resume_too():
    def fresh():
        batches = DistributedBatchSampler(range(10), 4, 1, 0, drop_last=True)
        return DataLoader(range(10), batch_sampler=batches, ledger=Ledger(exact=True))

    loader = fresh()
    assert len(list(loader)) == 2
    said = str(loader.ledger.verify())
    state = loader.state_dict()
    loader = fresh()
    loader.load_state_dict(state)
    loader.set_epoch(loader.epoch)
    assert list(loader) == []
    assert said == str(loader.ledger.verify()) == "8 of the 10 samples exactly once, 0 padded draws, 2 dropped"


def test_a_batch_that_was_interrupted_is_missing_and_no_other():
    lost = orders.Shuffled(24).indices(0, 8, 12).tolist()

    class Interrupted(Dataset):
        armed = True

        def __len__(self):
            return 24

        def __getitem__(self, id_):
            if self.armed and id_ == lost[1]:
                self.armed = False
                raise KeyboardInterrupt
            return id_

    ledger = Ledger(exact=True)
    batches = iter(DataLoader(Interrupted(), 4, sampler=DistributedSampler(range(24), 1, 0), ledger=ledger))
    list(itertools.islice(batches, 2))
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert len(list(batches)) == 3
    with pytest.raises(LedgerError) as caught:
        ledger.verify()
    assert caught.value.missing == sorted(lost)


def test_a_ledger_is_refused_where_batches_come_in_any_order():
    # What was drawn first would be recorded, and not what was handed out.
    with pytest.raises((TypeError, ValueError), match="in_order"):
        DataLoader(range(16), 2, num_workers=2, in_order=False, ledger=Ledger())


def test_a_finished_epoch_of_dealt_out_batches_verifies_after_a_resume_too():
    def fresh():
        batches = ShardedBatchSampler(DistributedBatchSampler(range(10), 4, 1, 0), 1, 0)
        return DataLoader(range(10), batch_sampler=batches, ledger=Ledger(exact=True))

    loader = fresh()
    assert len(list(loader)) == 3
    state = loader.state_dict()
    loader = fresh()
    loader.load_state_dict(state)
    loader.set_epoch(loader.epoch)
    assert list(loader) == []
    assert str(loader.ledger.verify()) == "every one of the 10 samples exactly once, 0 padded draws"


@pytest.mark.parametrize(("uneven", "padded"), [("pad", 2), ("keep", 0)])
@pytest.mark.parametrize("has_length", [True, False])
def test_batches_that_are_dealt_out_unevenly_verify(uneven, padded, has_length):
    batches = [[0, 1], [2, 3], [4]]
    ledgers = [Ledger(exact=True) for _ in range(2)]
    for rank, ledger in enumerate(ledgers):
        dealt = ShardedBatchSampler(batches if has_length else _Unsized(batches), 2, rank, uneven=uneven)
        list(DataLoader(range(5), batch_sampler=dealt, ledger=ledger))
    assert {str(report) for report in verify_together(ledgers)} == {
        f"every one of the 5 samples exactly once, {padded} padded draws"
    }


class _Unsized:
    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)


@pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")
@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_a_job_that_comes_back_on_more_ranks_to_a_rest_that_is_all_dropped_can_verify_the_epoch(uneven):
    def start(num_replicas):
        options = {"num_replicas": num_replicas, "drop_last": True, "uneven": uneven}
        batches = [LengthBucketBatchSampler(range(1, 45), 4, rank=rank, **options) for rank in range(num_replicas)]
        return [DataLoader(range(44), batch_sampler=each, ledger=Ledger()) for each in batches]

    (loader,) = start(1)
    for _ in itertools.islice(loader, 8):
        pass
    loader.ledger.gather()
    state = loader.state_dict()
    loaders = start(4)  # 12 samples are left, and a global batch is 16
    for each in loaders:
        each.load_state_dict(state)
        assert list(each) == []
    reports = verify_together([each.ledger for each in loaders])
    assert [str(report) for report in reports] == ["32 of the 44 samples exactly once, 0 padded draws, 12 dropped"] * 4


def test_a_state_whose_account_cannot_be_loaded_leaves_the_loader_where_it_was():
    def start(exact):
        return DataLoader(range(20), 4, sampler=DistributedSampler(range(20), 1, 0), ledger=Ledger(exact=exact))

    loader = start(exact=False)
    for _ in itertools.islice(loader, 3):
        pass
    other = start(exact=True)
    with pytest.raises(StateMismatchError, match="exact=False"):
        other.load_state_dict(loader.state_dict())
    assert other.state_dict()["consumed"] == 0
    assert len(list(other)) == 5
