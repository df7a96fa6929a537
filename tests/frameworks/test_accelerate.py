"""fastshard's samplers in Hugging Face accelerate's loaders, in one process and in two."""

import pytest
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, orders

N, BATCH_SIZE = 48, 4
STEPS = N // BATCH_SIZE

kinds = pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
workers = pytest.mark.parametrize("num_workers", [0, 2])


def make(kind, num_workers=0, num_replicas=1, rank=0):
    """(sampler, torch's DataLoader) before accelerate sees them."""
    if kind == "sampler":
        sampler = DistributedSampler(range(N), num_replicas, rank, seed=3)
        return sampler, DataLoader(range(N), BATCH_SIZE, sampler=sampler, num_workers=num_workers)
    batches = DistributedBatchSampler(range(N), BATCH_SIZE, num_replicas, rank, seed=3)
    return batches, DataLoader(range(N), batch_sampler=batches, num_workers=num_workers)


class Place:
    """What docs/resume.md registers for checkpointing: the batches that were trained on, whoever draws ahead."""

    def __init__(self, sampler, *batch_size):
        self.sampler, self.batch_size, self.steps = sampler, batch_size, 0

    def state_dict(self):
        return self.sampler.state_at(self.steps * PartialState().num_processes, *self.batch_size)

    def load_state_dict(self, state):
        self.sampler.load_state_dict(state)
        self.steps = 0


def accelerator_with(**configuration):
    """As a new process would have it: accelerate keeps its state in classes."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._shared_state.clear()
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**configuration))


def drawn(batches):
    return [batch.tolist() for batch in batches]


def epoch_of(epoch):
    return orders.Shuffled(N, 3).indices(epoch).reshape(-1, BATCH_SIZE).tolist()


@kinds
@workers
def test_skip_first_batches_gives_the_rest(kind, num_workers):
    sampler, loader = make(kind, num_workers)
    for skipped in (0, 1, STEPS - 1, STEPS):
        sampler.set_epoch(2)
        assert drawn(skip_first_batches(loader, skipped)) == epoch_of(2)[skipped:]
    sampler.load_state_dict(sampler.state_at(3, *[BATCH_SIZE][: kind == "sampler"]))
    assert drawn(skip_first_batches(loader, 2)) == epoch_of(2)[5:]


@kinds
@pytest.mark.parametrize(
    ("configuration", "num_workers"),
    [
        ({"use_stateful_dataloader": True}, 0),
        ({"use_stateful_dataloader": True}, 2),
        ({"use_stateful_dataloader": True, "dispatch_batches": True}, 0),
        ({}, 2),
        ({"split_batches": True}, 0),
        ({"dispatch_batches": True}, 0),
    ],
    ids=str,
)
def test_one_process_goes_on_after_any_step(kind, num_workers, configuration, tmp_path):
    """With a stateful loader nothing has to be registered; without one, accelerate keeps no place, and `Place` does."""

    def start():
        accelerator = accelerator_with(**configuration)
        sampler, loader = make(kind, num_workers)
        place = Place(sampler, *[BATCH_SIZE][: kind == "sampler"])
        if not configuration.get("use_stateful_dataloader"):
            accelerator.register_for_checkpointing(place)
        return accelerator, accelerator.prepare(loader), place

    accelerator, loader, place = start()
    for epoch in range(2):
        loader.set_epoch(epoch)
        place.steps = 0
        whole = []
        for batch in loader:
            whole.append(batch.tolist())
            place.steps += 1
            if epoch == 1 and place.steps in (1, 5, STEPS):
                accelerator.save_state(tmp_path / str(place.steps))
        assert whole == epoch_of(epoch)
    for steps in (1, 5, STEPS):
        accelerator, loader, place = start()
        accelerator.load_state(tmp_path / str(steps))
        if steps == STEPS and kind == "sampler" and num_workers:
            continue  # accelerate hides the sampler from torchdata, which draws epoch 2 in vain, then once more
        for epoch in range(1 if steps < STEPS else 2, 4):
            loader.set_epoch(epoch)
            assert drawn(loader) == epoch_of(epoch)[steps if epoch == 1 else 0 :]
