"""ShardedWebDataset: webdataset's own samples, each once an epoch over all ranks and workers."""

import gc
import io
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import webdataset as wds
from torch.utils.data import DataLoader as TorchLoader

from fastshard import DataLoader, EmptyRankWarning, Ledger, StateMismatchError, orders
from fastshard.webdataset import ShardedWebDataset, ShardError, TarIndex

SIZES = [3, 4, 5, 6, 7, 8]  # 33 samples


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Shards by webdataset's own writer; a sample's number is in its two fields."""
    folder, number, paths = tmp_path_factory.mktemp("shards"), 0, []
    for shard, size in enumerate(SIZES):
        paths.append(str(folder / f"shard-{shard}.tar"))
        with wds.TarWriter(paths[-1]) as writer:
            for _ in range(size):
                array = io.BytesIO()
                np.save(array, np.full(50, number))
                writer.write({"__key__": f"{number:04}", "npy": array.getvalue(), "cls": str(number).encode()})
                number += 1
    return paths


def make(shards, batch_size=None, rank=0, num_replicas=1, **options):
    return ShardedWebDataset(
        shards, batch_size=batch_size, rank=rank, num_replicas=num_replicas, progress=False, **options
    )


def numbers(samples):
    return [int(sample["cls"]) for sample in samples]


def number_of(samples):
    """A collate_fn."""
    return torch.tensor([int(sample["cls"]) for sample in samples])


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_samples_are_those_of_webdataset(shards):
    theirs = {sample["__key__"]: sample for sample in wds.WebDataset(shards, shardshuffle=False)}
    gc.collect()
    ours = list(make(shards))
    assert len(ours) == len(make(shards)) == 33
    for sample in ours:
        assert sample.pop("__index__") == int(sample["__key__"])
        wanted = theirs[sample["__key__"]]
        wanted.pop("__local_path__", None)
        assert sample == wanted
    assert numbers(make(shards, shuffle=False)) == list(range(33))


def test_epochs_differ_and_are_those_of_the_order(shards):
    dataset = make(shards, window=2, seed=3)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        assert numbers(dataset) == orders.BlockShuffled(SIZES, 3, 2).indices(epoch).tolist()


@pytest.mark.parametrize(("uneven", "draws"), [("pad", [17, 17]), ("drop", [16, 16]), ("keep", [17, 16])])
def test_uneven_stream(shards, uneven, draws):
    """Shards of 3,4,5,6,7,8 samples over P=2, split by sample: pad 17/17, drop 16/16, keep 17/16."""
    ranks = [numbers(make(shards, 2, rank, 2, uneven=uneven)) for rank in range(2)]
    assert [len(rank) for rank in ranks] == draws
    count = Counter(ranks[0] + ranks[1])
    assert len(count) == 33 - (uneven == "drop")
    assert count.total() - len(count) == (uneven == "pad")


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
@pytest.mark.parametrize(("shard_count", "num_replicas", "num_workers"), [(1, 4, 0), (3, 2, 2)])
def test_few_shards(shards, shard_count, num_replicas, num_workers):
    """S=1, P=4 and S=3, P=2, K=2: no hang; sample-level splitting works and is exact."""
    seen = Counter()
    for rank in range(num_replicas):
        dataset = make(shards[:shard_count], 2, rank, num_replicas, uneven="keep")
        loader = DataLoader(dataset, 2, num_workers=num_workers, collate_fn=number_of)
        seen.update(torch.cat(list(loader) or [torch.empty(0)]).int().tolist())
    assert seen == Counter(range(sum(SIZES[:shard_count])))


def test_each_rank_reads_few_shards(shards):
    many = shards * 4
    for rank in range(4):
        touched = {sample["__url__"] for sample in make(shards, 1, rank, 4, window=1)}
        assert len(touched) <= 4
    assert len(make(many, 1, 0, 4)) == 33


@pytest.mark.parametrize("num_workers", [0, 2, 3])
@pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
def test_workers_do_not_change_what_comes_out(shards, loader_class, num_workers):
    loader = loader_class(make(shards, 4), 4, num_workers=num_workers, collate_fn=number_of)
    assert [batch.tolist() for batch in loader] == [
        orders.BlockShuffled(SIZES, 0, 8).indices(0).tolist()[i : i + 4] for i in range(0, 33, 4)
    ]
    assert len(loader) == 9


def test_pipelines_of_webdataset_go_on_working(shards):
    pipeline = wds.DataPipeline(make(shards, 4), wds.decode(), wds.to_tuple("npy", "cls"), wds.batched(4))
    loader = wds.WebLoader(pipeline, batch_size=None, num_workers=2)
    batches = [(images[:, 0].tolist(), labels.tolist()) for images, labels in loader]
    order = orders.BlockShuffled(SIZES, 0, 8).indices(0).tolist()
    assert batches == [(order[i : i + 4], order[i : i + 4]) for i in range(0, 33, 4)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stages_are_gone_through_in_the_dataset_so_resume_and_ledger_know_it(shards, num_workers):
    def fresh():
        stages = (wds.decode(), wds.to_tuple("npy", "cls", "__index__"))
        dataset = make(shards, 4, stages=stages)
        return DataLoader(dataset, 4, num_workers=num_workers, ledger=Ledger(), ids=lambda batch: batch[2])

    loader, order = fresh(), orders.BlockShuffled(SIZES, 0, 8).indices(0).tolist()
    before = list(itertools.islice(loader, 5))
    loader.ledger.gather()
    again = fresh()
    again.load_state_dict(loader.state_dict())
    batches = before + list(again)
    assert [label for _, labels, _ in batches for label in labels.tolist()] == order
    assert [image for images, _, _ in batches for image in images[:, 0].tolist()] == order
    assert str(again.ledger.verify()) == "every one of the 33 samples exactly once, 0 padded draws"


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        (wds.batched(4), "fewer for 4"),
        (wds.select(lambda sample: sample["__index__"] % 2), "fewer for 4"),
        (lambda s: [*s, 1], "more for 4"),
    ],
)
def test_stages_that_change_how_many_there_are_are_refused(shards, stage, what):
    with pytest.raises(ValueError, match=f"one sample for each that goes in, and gave {what} samples"):
        list(make(shards, 4, stages=[stage]))
    with pytest.raises(TypeError, match=r"stages must be functions of an iterator, got stages\[0\]='decode'"):
        make(shards, 4, stages=["decode"])


@pytest.mark.parametrize("splitter", [wds.split_by_worker, wds.split_by_node])
def test_splitting_twice_is_refused(shards, splitter):
    pipeline = wds.DataPipeline(make(shards, 4), splitter)
    with pytest.raises(ValueError, match=f"{splitter.__name__} stands behind a ShardedWebDataset"):
        list(pipeline)


@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(0, 2), (2, 0)])
def test_a_resume_changes_ranks_and_workers_and_the_ledger_spans_it(shards, num_workers, resumed_workers):
    def fresh(rank, num_replicas, workers):
        dataset = make(shards, 12 // num_replicas // 3, rank, num_replicas)
        return DataLoader(
            dataset,
            12 // num_replicas // 3,
            num_workers=workers,
            collate_fn=number_of,
            ledger=Ledger(exact=True),
            ids=lambda batch: batch,
        )

    loader = fresh(0, 1, num_workers)
    loader.set_epoch(1)
    before = [number for batch in itertools.islice(loader, 4) for number in batch.tolist()]
    loader.ledger.gather()
    state = json.loads(json.dumps(loader.state_dict()))
    again = fresh(0, 1, resumed_workers)
    again.load_state_dict(state)
    after = [number for batch in again for number in batch.tolist()]
    assert before + after == orders.BlockShuffled(SIZES, 0, 8).indices(1).tolist()
    assert str(again.ledger.verify()) == "every one of the 33 samples exactly once, 0 padded draws"
    rest = []
    for rank in range(2):
        half = fresh(rank, 2, resumed_workers)
        half.load_state_dict(state)
        rest += [number for batch in half for number in batch.tolist()]
    assert sorted(set(before + rest)) == list(range(33))
    assert len(before + rest) == 34, "one is padded"


def test_other_shards_are_another_run(shards):
    state = make(shards).state_dict()
    with pytest.raises(StateMismatchError, match="length=33"):
        make(shards[:3]).load_state_dict(state)


def test_a_shard_that_changed_since_it_was_indexed_is_named(shards, tmp_path):
    copy = tmp_path / "copy.tar"
    copy.write_bytes(Path(shards[5]).read_bytes())
    dataset = make([str(copy)], shuffle=False)
    copy.write_bytes(copy.read_bytes()[:2000])
    with pytest.raises(ShardError, match=r"copy\.tar: offset \d+: .* changed since it was indexed"):
        list(dataset)


def test_an_index_is_taken_as_it_is_and_few_samples_warn(shards):
    index = TarIndex.build(shards[:1], progress=False)
    with pytest.warns(EmptyRankWarning, match="1 of 4 ranks get no sample"):
        dataset = ShardedWebDataset(index, uneven="keep", rank=3, num_replicas=4)
    assert list(dataset) == []


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_persistent_workers(shards, context):
    """K=2, persistent workers: `set_epoch` in the main process reaches them: new order each epoch, same pids."""
    dataset = make(shards, 4, window=2)
    loader = DataLoader(
        dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context=context, collate_fn=number_of
    )
    pids = set()
    for epoch in range(3):
        dataset.set_epoch(epoch)
        batches = iter(loader)
        pids.add(tuple(worker.pid for worker in batches._workers))
        got = [number for batch in batches for number in batch.tolist()]
        assert got == orders.BlockShuffled(SIZES, 0, 2).indices(epoch).tolist()
    assert len(pids) == 1


def test_spawned(shards):
    """P=4, K=2 under spawn, rank and world size from the environment: disjoint and complete."""
    seen = Counter()
    for rank in range(4):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("RANK", str(rank))
            environment.setenv("WORLD_SIZE", "4")
            dataset = make(shards, 3, None, None, uneven="keep")
            workers = {"num_workers": 2, "multiprocessing_context": "spawn"} if rank == 3 else {}
            for batch in DataLoader(dataset, 3, collate_fn=number_of, **workers):
                seen.update(batch.tolist())
    assert seen == Counter(range(33))
