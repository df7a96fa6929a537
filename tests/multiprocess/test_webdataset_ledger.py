"""Every digit once an epoch: shards by webdataset's own writer, real ranks and workers, and the exact ledger's word."""

import itertools
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from digit_shards import STAGES, write_digit_shards
from launch import run_ranks
from small_training import IndexedDigits

from fastshard import DataLoader, Ledger, LedgerError
from fastshard.webdataset import ShardedWebDataset, TarIndex

pytestmark = pytest.mark.multiprocess

LENGTH, BATCH_SIZE = 299, 16  # 1, 2 and 3 samples more than 2, 3 and 4 ranks can share
SHARDS, MODES = (1, 3, 16, 100), ("pad", "drop", "keep")


def passes(num_replicas):
    """Shards, workers and mode of each pass: every two of them together; and every three of them, over the ranks' 1..4.

    Starting workers is what takes time here, so with them each number of shards has one mode; without, all of them.
    """
    alone = [(shards, 0, uneven) for shards, uneven in itertools.product(SHARDS, MODES)]
    shift = itertools.product(enumerate(SHARDS, num_replicas), (1, 2, 3))
    return alone + [(shards, workers, MODES[(number + workers) % 3]) for (number, shards), workers in shift]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return {count: write_digit_shards(folder / f"{count}", LENGTH, count) for count in SHARDS}


def make(index, uneven="pad", num_workers=0, rank=None):
    dataset = ShardedWebDataset(index, batch_size=BATCH_SIZE, stages=STAGES, seed=5, uneven=uneven, rank=rank)
    return DataLoader(
        dataset, BATCH_SIZE, num_workers=num_workers, ledger=Ledger(exact=True), ids=lambda batch: batch[0]
    )


def go_through_all(shards):
    """Returns what this rank received in each of the passes, as ids of its batches, and what its ledger says of it."""
    digits = IndexedDigits(LENGTH)
    indexes = {count: TarIndex.build(urls, progress=False) for count, urls in shards.items()}
    received, reports = [], []
    for epoch, (count, num_workers, uneven) in enumerate(passes(dist.get_world_size())):
        loader = make(indexes[count], uneven, num_workers)
        loader.set_epoch(epoch)
        batches = []
        for ids, images, labels in loader:
            assert torch.equal(images.flatten(1) / 16, digits.images[ids])
            assert torch.equal(labels, digits.labels[ids])
            batches.append(ids.tolist())
        received.append(batches)
        reports.append(str(loader.ledger.verify()))
    return received, reports


def expected_report(uneven, num_replicas):
    left = LENGTH % num_replicas
    padded = -LENGTH % num_replicas if uneven == "pad" else 0
    draws = f"{padded} padded draw{'' if padded == 1 else 's'}"
    if uneven == "drop" and left:
        return f"{LENGTH - left} of the {LENGTH} samples exactly once, {draws}, {left} dropped"
    return f"every one of the {LENGTH} samples exactly once, {draws}"


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 4])
def test_every_digit_comes_once_an_epoch_whatever_the_shards_workers_and_mode(tmp_path, shards, num_replicas):
    ranks = run_ranks(go_through_all, num_replicas, tmp_path, shards, timeout_s=100)
    left = LENGTH % num_replicas
    for number, (count, num_workers, uneven) in enumerate(passes(num_replicas)):
        what = f"{count} shards, {num_workers} workers, {uneven}"
        assert {reports[number] for _, reports in ranks} == {expected_report(uneven, num_replicas)}, what
        batches = [received[number] for received, _ in ranks]
        seen = Counter(id_ for of_rank in batches for batch in of_rank for id_ in batch)
        assert len(seen) == LENGTH - (left if uneven == "drop" else 0), what
        assert seen.total() - len(seen) == (-LENGTH % num_replicas if uneven == "pad" else 0), what
        sizes = {tuple(map(len, of_rank)) for of_rank in batches}
        assert len(sizes) == 1 or uneven == "keep", what


def mistake_the_rank(urls):
    """Both ranks read rank 0's part; returns what the ledger says, and which samples it misses."""
    loader = make(urls, rank=0)
    for _ in loader:
        pass
    with pytest.raises(LedgerError) as error:
        loader.ledger.verify()
    return str(error.value), error.value.missing, [id_ for ids, _, _ in make(urls, rank=1) for id_ in ids.tolist()]


def test_the_ledger_names_what_a_rank_that_takes_itself_for_another_leaves_out(tmp_path, shards):
    for message, missing, of_rank_1 in run_ranks(mistake_the_rank, 2, tmp_path, shards[16]):
        assert message.startswith("epoch 0: "), message
        assert missing == sorted(of_rank_1[:149])  # 150 draws, of which the last is padding
