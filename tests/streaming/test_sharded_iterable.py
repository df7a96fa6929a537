"""ShardedIterable: even on all ranks though the length is unknown, the same for any number of workers, resumable."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader

from fastshard import DataLoader, EmptyRankWarning, Ledger, RepeatedEpochWarning
from fastshard.streaming.iterable import ShardedIterable

quiet = pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")


class Source:
    """Numbers that tell the epoch; it has no len."""

    def __init__(self, n):
        self.n, self.epoch = n, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(range(1000 * self.epoch, 1000 * self.epoch + self.n))


def hundred():
    yield from range(100)


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def numbers(batches):
    return [int(number) for batch in batches for number in batch]


@quiet
@given(n=st.integers(0, 40), num_replicas=st.integers(1, 7), uneven=st.sampled_from(["pad", "drop", "keep"]))
def test_ranks_get_what_a_sampler_would_deal_them(n, num_replicas, uneven):
    ranks = [
        list(ShardedIterable(Source(n), uneven=uneven, rank=rank, num_replicas=num_replicas))
        for rank in range(num_replicas)
    ]
    if uneven == "keep":
        assert ranks == [list(range(rank, n, num_replicas)) for rank in range(num_replicas)]
        return
    total = n - n % num_replicas if uneven == "drop" else n + -n % num_replicas
    assert ranks == [[p % n for p in range(rank, total, num_replicas)] for rank in range(num_replicas)]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
def test_batches_do_not_depend_on_the_number_of_workers(loader_class, num_workers):
    dataset = ShardedIterable(hundred, batch_size=7, rank=1, num_replicas=2)
    loader = loader_class(dataset, 7, num_workers=num_workers)
    assert [batch.tolist() for batch in loader] == [list(range(1, 100, 2))[i : i + 7] for i in range(0, 50, 7)]


@quiet
@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(0, 2), (2, 0), (2, 3)])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_a_resume_may_change_the_ranks_and_workers(num_workers, resumed_workers, uneven):
    def fresh(rank, num_replicas, workers):
        dataset = ShardedIterable(Source(101), batch_size=6, uneven=uneven, rank=rank, num_replicas=num_replicas)
        return DataLoader(dataset, 6, num_workers=workers)

    seen, state = [], None
    for rank in range(2):
        loader = fresh(rank, 2, num_workers)
        loader.set_epoch(2)
        seen += numbers(itertools.islice(loader, 4))
        state = saved(loader) if state is None else state
        assert saved(loader) == state
    for rank in range(3):
        loader = fresh(rank, 3, resumed_workers)
        loader.load_state_dict(state)
        seen += numbers(loader)
        assert saved(loader)["consumed"] == 2**63 - 1
        loader.set_epoch(3)
        assert numbers(loader)[0] == 3000 + rank
    padded = sorted(seen)[: 1 if uneven == "pad" else 0]  # 53 are left for 3 ranks
    expected = list(range(2000, 2101 - (2 if uneven == "drop" else 0)))
    assert sorted(seen) == sorted(expected + padded)


def test_a_source_without_epochs_can_be_gone_through_again_and_one_with_epochs_warns():
    plain = ShardedIterable(hundred, rank=0, num_replicas=1)
    assert list(plain) == list(plain) == list(range(100))
    with_epochs = ShardedIterable(Source(5), rank=0, num_replicas=1)
    list(with_epochs)
    with pytest.warns(RepeatedEpochWarning):
        list(with_epochs)


@pytest.mark.parametrize(("uneven", "empty"), [("drop", 3), ("keep", 1)])
def test_fewer_samples_than_ranks_warn(uneven, empty):
    with pytest.warns(EmptyRankWarning, match=rf"{empty} of 3 ranks get no sample: source gave 2"):
        list(ShardedIterable(Source(2), uneven=uneven, rank=0, num_replicas=3))


def test_what_is_no_source_is_refused():
    for source in (iter([1]), 3, None):
        with pytest.raises(TypeError, match="source must be an iterable"):
            ShardedIterable(source)
    with pytest.raises(TypeError, match="give ids"):
        DataLoader(ShardedIterable(hundred), ledger=Ledger())
