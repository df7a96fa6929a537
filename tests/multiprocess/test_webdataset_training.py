"""DDP trained from shards is, to the bit, DDP trained from arrays in that order; in a sampler's order it is as good."""

import math

import pytest
import torch
from digit_shards import STAGES, write_digit_shards
from launch import run_ranks
from small_training import IndexedDigits, flat, make_model, make_optimizer, step
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, default_collate

import fastshard
from fastshard import orders
from fastshard.webdataset import ShardedWebDataset, TarIndex

pytestmark = pytest.mark.multiprocess

LENGTH, TEST_LENGTH, BATCH_SIZE, EPOCHS, SEED = 1437, 360, 16, 3, 7


def train(batches_of):
    """Trains on `batches_of(epoch)`; returns the losses, the parameters, and how many of the other digits are right."""
    model = DistributedDataParallel(make_model(seed=0))
    optimizer = make_optimizer(model)
    losses = []
    for epoch in range(EPOCHS):
        for _, images, labels in batches_of(epoch):
            losses.append(step(model, optimizer, images.flatten(1), labels))
    everything = IndexedDigits(LENGTH + TEST_LENGTH)
    with torch.no_grad():
        right = model.module(everything.images[LENGTH:]).argmax(1) == everything.labels[LENGTH:]
    return losses, flat(model), right.sum().item()


def scaled(samples):
    """A collate_fn that makes of images in shards what IndexedDigits has."""
    index, images, labels = default_collate(samples)
    return index, images / 16, labels


def train_from_shards(urls):
    dataset = ShardedWebDataset(urls, batch_size=BATCH_SIZE, stages=STAGES, seed=SEED, progress=False)
    loader = fastshard.DataLoader(dataset, BATCH_SIZE, num_workers=2, collate_fn=scaled)

    def batches_of(epoch):
        loader.set_epoch(epoch)
        return loader

    return train(batches_of)


def train_from_arrays(ids_of):
    """Trains on samples of `ids_of[rank][epoch]`, taken from the arrays by their numbers."""
    dataset, of_epochs = IndexedDigits(LENGTH), ids_of[torch.distributed.get_rank()]
    return train(lambda epoch: DataLoader(Subset(dataset, of_epochs[epoch]), BATCH_SIZE))


def train_all(urls, orders_of_ids):
    return [train_from_shards(urls), *map(train_from_arrays, orders_of_ids)]


def test_training_from_shards_is_training_from_arrays(tmp_path):
    urls = write_digit_shards(tmp_path / "digits", LENGTH, 12)
    blocks = orders.BlockShuffled(TarIndex.build(urls, progress=False).samples_per_shard, SEED, 8)
    half = LENGTH // 2 + 1  # rank 0's; rank 1 has one fewer, and goes on with the order's first one
    in_order = [blocks.indices(epoch).tolist() * 2 for epoch in range(EPOCHS)]
    same = [[ids[rank * half :][:half] for ids in in_order] for rank in range(2)]
    shuffled = [orders.Shuffled(LENGTH, SEED).indices(epoch).tolist() * 2 for epoch in range(EPOCHS)]
    of_a_sampler = [[ids[rank : 2 * half : 2] for ids in shuffled] for rank in range(2)]

    for from_shards, as_arrays, in_other_order in run_ranks(train_all, 2, tmp_path, urls, [same, of_a_sampler]):
        losses, parameters, right = from_shards
        assert len(losses) == EPOCHS * -(-half // BATCH_SIZE)
        assert losses == as_arrays[0]
        assert torch.equal(parameters, as_arrays[1])
        assert right == as_arrays[2]
        assert losses != in_other_order[0]
        # Two models of one accuracy p differ by chance with a deviation of at most sqrt(2 p (1 - p) n) right ones of n.
        p = in_other_order[2] / TEST_LENGTH
        assert p > 0.85
        assert abs(right - in_other_order[2]) < 3 * math.sqrt(2 * p * (1 - p) * TEST_LENGTH)
