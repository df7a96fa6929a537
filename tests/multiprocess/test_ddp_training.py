"""DDP over fastshard's samplers: two processes hold one model, and that model is the one a single process trains."""

import pytest
import torch
import torch.distributed as dist
from launch import run_ranks
from small_training import IndexedDigits, flat, make_model, make_optimizer, step
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, orders
from fastshard.audit import measure_coverage, problems

pytestmark = pytest.mark.multiprocess

EPOCHS = 3


def train_each_epoch():
    """Returns this rank's parameters before and after each epoch, the ids it received in each, and its padding."""
    dataset = IndexedDigits(403)
    model = DistributedDataParallel(make_model(seed=dist.get_rank()))  # ranks start apart; DDP makes them rank 0's
    optimizer = make_optimizer(model)
    sampler = DistributedSampler(dataset, seed=7)
    loader = DataLoader(dataset, 16, sampler=sampler)
    parameters, received = [flat(model)], []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        ids = []
        for index, images, labels in loader:
            step(model, optimizer, images, labels)
            ids.append(index)
        parameters.append(flat(model))
        received.append(torch.cat(ids))
    return parameters, received, sampler.num_padding


def test_ddp_parameters_are_identical_on_both_ranks_after_each_epoch(tmp_path):
    (parameters_0, received_0, padding_0), (parameters_1, received_1, padding_1) = run_ranks(
        train_each_epoch, 2, tmp_path
    )
    assert len(parameters_0) == 1 + EPOCHS
    for epochs_done in range(1 + EPOCHS):
        assert torch.equal(parameters_0[epochs_done], parameters_1[epochs_done]), f"after {epochs_done} epochs"
    changes = torch.stack(parameters_0).diff(dim=0).abs().amax(1)
    assert changes.min() > 1e-3, "every epoch trains"
    coverage = [measure_coverage(ids, [padding_0, padding_1], 403) for ids in zip(received_0, received_1, strict=True)]
    assert problems(coverage) == []
    assert [epoch.padded for epoch in coverage] == [1, 1, 1]


# 203 samples, 2 ranks, micro-batch 10: 10 global batches of 20, and 3 samples dropped, so that the mean over the ranks'
# means is the mean over the global batch.
LENGTH, MICRO_BATCH, WORLD_SIZE, SEED = 203, 10, 2, 11
GLOBAL_BATCH = MICRO_BATCH * WORLD_SIZE
NUM_STEPS = LENGTH // GLOBAL_BATCH


def train_on_slices():
    dataset = IndexedDigits(LENGTH, torch.float64)
    model = DistributedDataParallel(make_model(0, torch.float64))
    optimizer = make_optimizer(model)
    batches = DistributedBatchSampler(dataset, MICRO_BATCH, seed=SEED, drop_last=True)
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for _, images, labels in DataLoader(dataset, batch_sampler=batches):
            step(model, optimizer, images, labels)
    return flat(model)


def global_batches(name, epoch):
    """Returns an epoch's steps as ids of shape (NUM_STEPS, GLOBAL_BATCH): the right ones, or wrong ones by name."""
    seed = SEED + 1 if name == "another seed" else SEED
    epoch = 0 if name == "set_epoch forgotten" else epoch
    used = orders.Shuffled(LENGTH, seed).indices(epoch, 0, NUM_STEPS * GLOBAL_BATCH)
    if name == "contiguous halves":  # rank r has the r-th half of the order, and not every second position
        used = used.reshape(WORLD_SIZE, NUM_STEPS, MICRO_BATCH).swapaxes(0, 1)
    return used.reshape(NUM_STEPS, GLOBAL_BATCH)  # step t: positions [t * GLOBAL_BATCH, (t + 1) * GLOBAL_BATCH)


def train_alone(names):
    """Returns the parameters after training in one process, for each of the global batches named."""
    dataset = IndexedDigits(LENGTH, torch.float64)
    parameters = {}
    for name in names:
        model = make_model(0, torch.float64)
        optimizer = make_optimizer(model)
        for epoch in range(EPOCHS):
            for ids in torch.as_tensor(global_batches(name, epoch)):
                step(model, optimizer, dataset.images[ids], dataset.labels[ids])
        parameters[name] = flat(model)
    return parameters


def test_ddp_equals_one_process_on_the_whole_global_batch(tmp_path):
    rank_0, rank_1 = run_ranks(train_on_slices, WORLD_SIZE, tmp_path)
    assert torch.equal(rank_0, rank_1)
    wrong = ["another seed", "contiguous halves", "set_epoch forgotten"]
    [alone] = run_ranks(train_alone, 1, tmp_path, ["right", *wrong])
    torch.testing.assert_close(rank_0, alone["right"], rtol=1e-10, atol=1e-12)
    # The comparison has teeth: other global batches lead elsewhere, millions of tolerances away.
    for name in wrong:
        assert (rank_0 - alone[name]).abs().max() > 1e-3, name
