"""accelerate on two processes deals out what it prepares: which samplers to give it, and which it would shard again."""

import os
import warnings

import pytest
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.data_loader import prepare_data_loader
from accelerate.state import AcceleratorState, GradientState, PartialState
from launch import run_ranks
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, orders

pytestmark = pytest.mark.multiprocess

N, BATCH_SIZE, EPOCH, STOP = 48, 4, 2, 2  # a global batch is 8: 6 steps, stopped after 2


def start(num_replicas=1, batch_size=BATCH_SIZE, **configuration):
    """(accelerator, sampler, loader) as a new process has them; accelerate keeps its state in classes."""
    rank = dist.get_rank()
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in environment.items()})
    for state in (AcceleratorState, GradientState, PartialState):
        state._shared_state.clear()
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**configuration))
    assert (accelerator.num_processes, accelerator.process_index) == (2, rank)
    sampler = DistributedBatchSampler(range(N), batch_size, num_replicas, rank % num_replicas, seed=3)
    return accelerator, sampler, DataLoader(range(N), batch_sampler=sampler)


def drawn(loader):
    loader.set_epoch(EPOCH)
    return [batch.tolist() for batch in loader]


def whole_and_rest(batches_a_step, **options):
    """What this rank draws in the epoch, and what in a new process that loads the state of step STOP."""
    stateful = options.get("use_stateful_dataloader")
    accelerator, sampler, loader = start(**options)
    loader = accelerator.prepare(loader)
    loader.set_epoch(EPOCH)
    whole = []
    for batch in loader:
        whole.append(batch.tolist())
        if len(whole) == STOP:
            state = loader.state_dict() if stateful else sampler.state_at(STOP * batches_a_step)
    accelerator, sampler, loader = start(**options)
    loader = accelerator.prepare(loader)
    (loader if stateful else sampler).load_state_dict(state)
    return whole, drawn(loader)


def sharded_sampler():
    """The same for a sampler of this rank, in a loader that accelerate takes for one process's."""
    _, sampler, loader = start(num_replicas=2)
    loader = prepare_data_loader(loader, num_processes=1, process_index=0)
    whole = drawn(loader)
    sampler.load_state_dict(sampler.state_at(STOP))
    return whole, drawn(loader)


def job():
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it; newer torch objects
    accelerator, _, loader = start(num_replicas=2)
    twice = drawn(accelerator.prepare(loader))
    return twice, {
        "a batch each": whole_and_rest(2),
        "a batch each, stateful": whole_and_rest(2, use_stateful_dataloader=True),
        "a batch split": whole_and_rest(1, split_batches=True, batch_size=2 * BATCH_SIZE),
        "dispatched": whole_and_rest(2, dispatch_batches=True),
        "sharded sampler": sharded_sampler(),
    }


def test_each_sample_comes_once_and_a_resume_gives_the_rest_unless_sharded_twice(tmp_path):
    ranks = run_ranks(job, 2, tmp_path)
    twice = [i for rank, _ in ranks for batch in rank for i in batch]
    assert (len(twice), len(set(twice))) == (N // 2, N // 2)
    order = orders.Shuffled(N, 3).indices(EPOCH).reshape(-1, 2 * BATCH_SIZE).tolist()
    for name in ranks[0][1]:
        (whole, rest), (other_whole, other_rest) = (loaders[name] for _, loaders in ranks)
        steps = [sorted(mine + others) for mine, others in zip(whole, other_whole, strict=True)]
        assert steps == [sorted(step) for step in order], name
        assert (rest, other_rest) == (whole[STOP:], other_whole[STOP:]), name
