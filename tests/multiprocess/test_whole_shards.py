"""Plain stages of WebDataset shards on real ranks: too few shards never hang, ledgers are exact, accelerate is told."""

import gc
import itertools
import os
import warnings
from collections import Counter

import pytest
import torch
import torch.distributed as dist
import webdataset as wds
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState, PartialState
from launch import run_ranks
from torch.utils.data import DataLoader as TorchLoader

from fastshard import DataLoader, EmptyRankWarning, Ledger
from fastshard.webdataset import ShardedWebDataset, TarIndex, sample_ids, shards, split_by_rank, split_by_worker

pytestmark = pytest.mark.multiprocess

SIZES = [3, 4, 5, 6, 7, 8]  # 33 samples


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder, number, paths = tmp_path_factory.mktemp("shards"), itertools.count(), []
    for shard, size in enumerate(SIZES):
        paths.append(str(folder / f"shard-{shard}.tar"))
        with wds.TarWriter(paths[-1]) as writer:
            for sample in itertools.islice(number, size):
                writer.write({"__key__": f"{sample:04}", "cls": str(sample).encode()})
    TarIndex.build(paths, progress=False)
    return paths


def numbers(samples):
    return torch.tensor([int(sample["cls"]) for sample in samples])


def number(sample):
    return numbers([sample])


def quietly():
    """webdataset leaves its files to the garbage collector, and whole shards leave ranks uneven."""
    warnings.simplefilter("ignore", ResourceWarning)
    warnings.filterwarnings("ignore", "(?s).*whole shards leave")


def drawn(loader):
    """What a loader gives, or how it is refused: its message's last line, which a worker's traceback ends with."""
    try:
        return [batch.tolist() for batch in loader]
    except ValueError as error:
        refused = str(error).strip().splitlines()[-1]
    gc.collect()  # the error keeps the loader's iterator in a cycle; workers that are forked later would find it there
    return refused


def few(urls, num_workers):
    quietly()
    warnings.simplefilter("ignore", EmptyRankWarning)
    plain = wds.WebDataset(urls, shardshuffle=False, nodesplitter=split_by_rank, workersplitter=split_by_worker)
    refused = drawn(wds.WebLoader(plain, batch_size=None, num_workers=num_workers))
    exact = ShardedWebDataset(urls, uneven="keep", progress=False)
    return refused, drawn(TorchLoader(exact, None, num_workers=num_workers, collate_fn=number))


@pytest.mark.parametrize(("num_shards", "num_replicas", "num_workers"), [(1, 4, 0), (3, 2, 2)])
def test_few_shards(urls, tmp_path, num_shards, num_replicas, num_workers):
    """Split by shard, every rank raises with the counts, and none waits; split by sample, the same shards are exact."""
    ranks = run_ranks(few, num_replicas, tmp_path, urls[:num_shards], num_workers)
    each = " of 2 workers each" if num_workers else ""
    for refused, _ in ranks:
        assert f"too few: {num_shards} for {num_replicas} ranks{each}; take" in refused
    assert Counter(n for _, got in ranks for (n,) in got) == Counter(range(sum(SIZES[:num_shards])))


def spawned(urls):
    quietly()
    assert "RANK" not in os.environ, "only the process group says who this is"
    plain = wds.WebDataset(urls, shardshuffle=False, nodesplitter=split_by_rank)
    workers = {"num_workers": 2, "multiprocessing_context": "spawn", "collate_fn": numbers}
    whole = shards(urls, batch_size=4, uneven="keep", progress=False)
    return drawn(TorchLoader(plain, 4, **workers)), drawn(TorchLoader(whole, 4, **workers)), whole.shards_per_rank


def test_spawned_workers_know_the_rank_that_the_process_group_gave(urls, tmp_path):
    ranks = run_ranks(spawned, 2, tmp_path, urls)
    for kind in range(2):
        assert Counter(n for got in ranks for batch in got[kind] for n in batch) == Counter(range(33))
    assert ranks[0][2] == ranks[1][2] == [[1, 2, 5], [0, 3, 4]]


def accounts(urls):
    """Reports of an epoch in one piece, and of one that was stopped after 2 batches."""
    quietly()

    def fresh(num_workers):
        dataset = shards(urls, batch_size=4, uneven=uneven, deal="in_turn", progress=False)
        loader = DataLoader(
            dataset, 4, num_workers=num_workers, collate_fn=list, ledger=Ledger(exact=True), ids=sample_ids
        )
        loader.set_epoch(1)
        return loader

    reports = {}
    for uneven in ("pad", "drop", "keep"):
        whole = fresh(2)
        steps = len(list(whole))
        stopped = fresh(2)
        for _ in itertools.islice(stopped, 2):
            pass
        stopped.ledger.verify()
        stopped.ledger.gather()
        resumed = fresh(0)
        resumed.load_state_dict(stopped.state_dict())
        assert steps == 2 + len(list(resumed))
        reports[uneven] = (steps, str(whole.ledger.verify()), str(resumed.ledger.verify()))
    return reports


def test_the_ledger_is_exact_for_whole_shards_in_every_mode_and_over_a_stop(urls, tmp_path):
    """Shards of 3,4,5,6,7,8 samples, dealt in turn: 15 samples on rank 0, and 18 on rank 1."""
    ranks = run_ranks(accounts, 2, tmp_path, urls)
    exact = "every one of the 33 samples exactly once"
    reports = {
        "pad": f"{exact}, 3 padded draws",
        "drop": "30 of the 33 samples exactly once, 0 padded draws, 3 dropped",
        "keep": f"{exact}, 0 padded draws",
    }
    steps = {"pad": [5, 5], "drop": [4, 4], "keep": [4, 5]}
    for rank, got in enumerate(ranks):
        assert got == {uneven: (steps[uneven][rank], report, report) for uneven, report in reports.items()}


def accelerated(urls):
    """What accelerate's loaders give, by who splits; None dispatches from rank 0, False lets each rank read all."""
    quietly()
    rank = dist.get_rank()
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in environment.items()})
    found = {}
    for dispatched, num_workers in itertools.product((None, False), (0, 2)):
        for state in (AcceleratorState, GradientState, PartialState):
            state._shared_state.clear()
        configuration = DataLoaderConfiguration(dispatch_batches=dispatched)
        accelerator = Accelerator(cpu=True, dataloader_config=configuration)
        kinds = {
            "ours": ShardedWebDataset(urls, batch_size=3, progress=False),
            "whole": shards(urls, batch_size=3, progress=False),
            "theirs": ShardedWebDataset(urls, batch_size=3, progress=False, rank=0, num_replicas=1),
        }
        if dispatched is False:  # else only rank 0 draws, and the other waits for what it raises
            kinds["plain"] = wds.WebDataset(urls, shardshuffle=False, nodesplitter=split_by_rank)
        for kind, dataset in kinds.items():
            loader = TorchLoader(dataset, 3, num_workers=num_workers, collate_fn=numbers)
            found[dispatched, num_workers, kind] = drawn(accelerator.prepare(loader))
    return found


def test_accelerate_splits_only_what_is_not_split(urls, tmp_path):
    mine, others = run_ranks(accelerated, 2, tmp_path, urls)
    assert len(mine) == 14
    for (dispatched, num_workers, kind), got in mine.items():
        both = [got, others[dispatched, num_workers, kind]]
        if kind == "theirs":
            count = Counter(n for rank in both for batch in rank for n in batch)
            assert len(count) == 33
            assert len(both[0]) == len(both[1])
            continue
        who = "DataLoaderDispatcher" if dispatched is None else "IterableDatasetShard"
        what = {"ours": "a ShardedWebDataset", "whole": "a WholeShards", "plain": "split_by_rank"}[kind]
        for refused in both:
            assert f"accelerate's {who} stands behind {what}, which deals to 2 ranks" in refused
