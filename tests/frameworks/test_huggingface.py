"""Hugging Face's IterableDataset as a source: split once, by samples or by shards, and in one order on all ranks."""

import json
from itertools import islice

import pytest
import webdataset
from datasets import IterableDataset, concatenate_datasets, interleave_datasets
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader as TorchLoader

from fastshard import DataLoader, ShardedIterable, StateMismatchError

SIZES = [3, 4, 5, 6, 7, 8]  # rows of the shards
IDS = [10 * shard + row for shard, size in enumerate(SIZES) for row in range(size)]


def rows_of(shards, log):
    """Writes down each shard that is opened."""
    for shard in shards:
        if log:
            with open(log, "a") as file:  # noqa: PTH123
                file.write(f"{shard}\n")
        yield from ({"id": 10 * shard + row} for row in range(SIZES[shard]))


def rows(log=None, shards=range(6)):
    return IterableDataset.from_generator(rows_of, gen_kwargs={"shards": list(shards), "log": log})


def loader_of(source, rank, num_replicas=2, num_workers=0, loader_class=DataLoader, persistent=False, **options):
    dataset = ShardedIterable(source, batch_size=4, rank=rank, num_replicas=num_replicas, **options)
    return loader_class(dataset, 4, num_workers=num_workers, persistent_workers=persistent)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def flat(batches):
    return [number for batch in ids(batches) for number in batch]


def cut(numbers):
    return [numbers[at : at + 4] for at in range(0, len(numbers), 4)]


@pytest.mark.parametrize("num_workers", [0, 2, 3])
@pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
def test_samples_are_dealt_in_the_datasets_order_whatever_the_workers(loader_class, num_workers):
    for rank in range(2):
        batches = ids(loader_of(rows(), rank, num_workers=num_workers, loader_class=loader_class, uneven="keep"))
        assert batches == cut(IDS[rank::2])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("by", ["samples", "shards"])
def test_a_shuffled_dataset_has_one_order_on_all_ranks_and_another_in_each_epoch(by, num_workers):
    def shuffled():
        return rows().map(lambda row: row).shuffle(seed=5, buffer_size=8)

    orders = []
    persistent = [
        loader_of(shuffled(), rank, num_workers=num_workers, persistent=num_workers > 0, by=by, uneven="keep")
        for rank in range(2)
    ]
    for epoch in range(3):
        seen = []
        for rank, loader in enumerate(persistent):
            loader.set_epoch(epoch)
            seen.append(flat(loader))
            fresh = loader_of(shuffled(), rank, by=by, uneven="keep")
            fresh.set_epoch(epoch)
            assert seen[-1] == flat(fresh)
        assert sorted(seen[0] + seen[1]) == IDS
        orders.append(seen)
        if by == "samples":
            told = shuffled()
            told.set_epoch(epoch)
            assert seen == [[row["id"] for row in told][rank::2] for rank in range(2)]
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_by_shards_a_rank_and_its_workers_open_its_own_shards_only(num_workers, tmp_path):
    for rank, number in enumerate([15, 18]):
        log = tmp_path / f"{rank}.txt"
        batches = ids(loader_of(rows(str(log)), rank, by="shards", uneven="keep", num_workers=num_workers))
        due = [number for number in IDS if number // 10 % 2 == rank]
        assert len(due) == number
        assert batches == cut(due)
        own = [shard for shard in range(6) if shard % 2 == rank]
        assert sorted(map(int, log.read_text().split())) == sorted(own * max(1, num_workers))


class Shards:
    """A source of one's own with shards."""

    def __init__(self, shards):
        self.shards, self.num_shards, self.epoch = shards, len(shards), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def shard(self, num_shards, index):
        own = Shards(self.shards[index::num_shards])
        own.epoch = self.epoch
        return own

    def __iter__(self):
        return ({"id": 100 * self.epoch + 10 * shard + row} for shard in self.shards for row in range(SIZES[shard]))


def test_a_source_of_ones_own_with_shards_is_dealt_by_them_too():
    loader = loader_of(Shards(range(6)), 1, by="shards", uneven="keep")
    loader.set_epoch(1)
    assert flat(loader) == [100 + number for number in IDS if number // 10 % 2 == 1]


@pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning")
@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(0, 2), (2, 0)])
def test_by_shards_a_resume_may_change_the_workers_but_not_the_ranks(num_workers, resumed_workers):
    def fresh(workers, num_replicas=2):
        source = rows().shuffle(seed=5, buffer_size=8)
        return loader_of(source, 1, num_replicas, workers, by="shards", uneven="keep")

    whole, loader, again = fresh(0), fresh(num_workers), fresh(resumed_workers)
    whole.set_epoch(2)
    loader.set_epoch(2)
    begun = ids(islice(loader, 3))
    state = json.loads(json.dumps(loader.state_dict()))
    again.load_state_dict(state)
    assert begun + ids(again) == ids(whole)
    with pytest.raises(StateMismatchError, match=r"num_replicas=2.*num_replicas=3"):
        fresh(0, num_replicas=3).load_state_dict(state)


def test_a_state_goes_on_only_in_the_same_shuffle():
    state = loader_of(rows().shuffle(seed=5), 0).state_dict()
    loader_of(rows().shuffle(seed=5), 0).load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"order_digest='seed=5'.*order_digest='seed=6'"):
        loader_of(rows().shuffle(seed=6), 0).load_state_dict(state)


@pytest.mark.parametrize("source", [rows().shuffle(), interleave_datasets([rows(), rows()], probabilities=[0.5, 0.5])])
def test_a_shuffle_without_a_seed_is_refused_where_ranks_would_differ(source):
    with pytest.raises(ValueError, match=r"each of 2 ranks would have another order; call shuffle\(seed=\.\.\.\)"):
        list(ShardedIterable(source, rank=0, num_replicas=2))
    assert len(list(ShardedIterable(source, rank=0, num_replicas=1))) > 0


def test_what_is_split_already_is_refused():
    split = split_dataset_by_node(rows(), 1, 3)
    for source in (split, split.map(lambda row: row), concatenate_datasets([split, split])):
        with pytest.raises(ValueError, match=r"split already, got .* split_dataset_by_node\(rank=1, world_size=3\)"):
            ShardedIterable(source)
    with pytest.raises(TypeError, match="source must not be split already, got a ShardedIterable"):
        ShardedIterable(ShardedIterable(rows()))


def test_by_shards_says_what_it_needs():
    with pytest.raises(ValueError, match=r"a shard for each rank: source has 2, and there are 4 ranks"):
        list(loader_of(rows(shards=range(2)), 0, 4, by="shards", uneven="keep"))
    with pytest.raises(ValueError, match=r"uneven must be \"keep\" with by=\"shards\", got uneven='pad'.*lockstep"):
        ShardedIterable(rows(), by="shards")
    with pytest.raises(TypeError, match=r"a source with num_shards and shard\(num_shards, index\), got \[1\]"):
        ShardedIterable([1], by="shards", uneven="keep")
    with pytest.raises(ValueError, match="by must be one of"):
        ShardedIterable(rows(), by="rank")


def test_the_dataset_that_was_given_is_left_as_it_was():
    source = rows()
    loader = loader_of(source, 0)
    loader.set_epoch(3)
    list(loader)
    assert source.epoch == 0
    assert [row["id"] for row in source] == IDS


def test_webdataset_does_not_split_itself_by_worker_either(tmp_path):
    for shard in range(3):
        with webdataset.TarWriter(str(tmp_path / f"{shard}.tar")) as writer:
            for row in range(SIZES[shard]):
                writer.write({"__key__": f"{10 * shard + row:03d}", "id": str(10 * shard + row)})
    urls = [str(tmp_path / f"{shard}.tar") for shard in range(3)]
    source = webdataset.WebDataset(urls, shardshuffle=False).map(lambda sample: {"id": int(sample["id"])})
    assert ids(loader_of(source, 1, num_workers=2, uneven="keep")) == cut(IDS[:12][1::2])
