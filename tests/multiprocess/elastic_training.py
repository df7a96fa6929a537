"""A training that is killed again and again, and what each of its processes wrote down. Started by torchrun.

    torchrun ... elastic_training.py FOLDER LAUNCH NUM_WORKERS CONTEXT

FOLDER/plan.json says where samples come from (a sampler, shards, an iterable), and when to be killed: by
"LAUNCH.RESTART" the rank that kills itself, in which of its steps, and at which point of it. Each rank appends what it
does to FOLDER/rankR.jsonl, a line with one write, so that a kill leaves whole lines.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from small_training import flat, make_model
from torch import nn
from torch.utils.data import Dataset, default_collate

from fastshard import DataLoader, DistributedSampler, Ledger, ShardedIterable, orders

POINTS = ("before the step", "before the save", "in the save", "after the save")


class Digits(Dataset):
    """The digits that the test left in the folder, and their indices."""

    def __init__(self, folder, length):
        self.images, self.labels = (tensor[:length] for tensor in torch.load(folder / "digits.pt"))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index, self.images[index], self.labels[index]


class InOrder:
    """The samples of a dataset in the sampler's order, for who may not ask how many they are."""

    def __init__(self, dataset):
        self.dataset, self.epoch = dataset, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        ids = orders.Shuffled(len(self.dataset), 7).indices(self.epoch).tolist()
        return (self.dataset[id_] for id_ in ids)


def scaled(samples):
    """A collate_fn that makes of images in shards what Digits has."""
    index, images, labels = default_collate(samples)
    return index, images.flatten(1).double() / 16, labels


def die_with(parent, worker):  # noqa: ARG001
    """Ends a worker with its rank. Torch's own watch asks for the parent's number, which may be 1 by then, for ever."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


class Run:
    """One process between two kills."""

    def __init__(self, folder, launch, num_workers, context):
        self.folder, self.plan = folder, json.loads((folder / "plan.json").read_text())
        self.rank, self.num_replicas = dist.get_rank(), dist.get_world_size()
        self.name = f"{launch}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
        self.kill = self.plan["kills"].get(self.name)
        self.log = os.open(folder / f"rank{self.rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.model = make_model(0, torch.float64)
        self.momentum = [torch.zeros_like(parameter) for parameter in self.model.parameters()]
        self.ledger = None if self.plan["source"] == "iterable" else Ledger(exact=True)  # whose length nobody knows
        self.loader = self.make_loader(
            self.plan["global_batch"] // self.num_replicas,
            num_workers=num_workers,
            multiprocessing_context=context if num_workers else None,
            worker_init_fn=partial(die_with, os.getpid()),
            ledger=self.ledger,
        )

    def make_loader(self, batch_size, **options):
        digits = Digits(self.folder, self.plan["length"])
        if self.plan["source"] == "sampler":
            return DataLoader(digits, batch_size, sampler=DistributedSampler(digits, seed=7), **options)
        if self.plan["source"] == "iterable":
            return DataLoader(ShardedIterable(InOrder(digits), batch_size=batch_size), batch_size, **options)
        from digit_shards import STAGES  # here, because webdataset's import takes its time in each restart

        from fastshard.webdataset import ShardedWebDataset

        dataset = ShardedWebDataset(self.plan["shards"], batch_size=batch_size, stages=STAGES, seed=7, progress=False)
        return DataLoader(dataset, batch_size, collate_fn=scaled, ids=lambda batch: batch[0], **options)

    def write(self, **what):
        os.write(self.log, (json.dumps({"run": self.name, "replicas": self.num_replicas, **what}) + "\n").encode())

    def reach(self, steps, point):
        if self.kill and [self.rank, steps, point] == self.kill:
            self.write(kill=point)
            os.kill(os.getpid(), signal.SIGKILL)

    def place(self, state):
        """Epoch and consumed; of an iterable's epoch that is over the state does not know how many samples it had."""
        return state["epoch"], min(state["consumed"], self.plan["length"])

    def save(self, steps):
        if self.ledger:
            self.ledger.gather()
        if self.rank == 0:
            new = self.folder / "checkpoint.new"
            state = {
                "model": self.model.state_dict(),
                "momentum": self.momentum,
                "loader": self.loader.state_dict(),
            }
            with new.open("wb") as file:
                torch.save(state, file)
            self.reach(steps, "in the save")
            new.replace(self.folder / "checkpoint")
            self.write(saved=self.place(state["loader"]))

    def load(self):
        path = self.folder / "checkpoint"
        if path.exists():
            state = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.momentum = state["momentum"]
            self.loader.load_state_dict(state["loader"])
        place = self.place(self.loader.state_dict())
        self.write(begin=place)
        return place[0]

    def step(self, images, labels):
        """By hand: DistributedDataParallel and torch.optim import what takes longer than all the rest of a restart."""
        loss = nn.functional.cross_entropy(self.model(images), labels)
        gradients = torch.autograd.grad(loss, list(self.model.parameters()))
        with torch.no_grad():
            for parameter, gradient, momentum in zip(self.model.parameters(), gradients, self.momentum, strict=True):
                dist.all_reduce(gradient)
                momentum.mul_(0.9).add_(gradient / self.num_replicas)
                parameter.sub_(0.1 * momentum)

    def train(self):
        """Trains to the end of the plan, or to the kill."""
        steps = 0
        for epoch in range(self.load(), self.plan["epochs"]):
            self.loader.set_epoch(epoch)
            for index, images, labels in self.loader:
                steps += 1
                self.reach(steps, "before the step")
                self.step(images, labels)
                self.write(epoch=epoch, consumed=self.place(self.loader.state_dict())[1], ids=index.tolist())
                self.reach(steps, "before the save")
                if steps % self.plan["save_every"] == 0:
                    self.save(steps)
                self.reach(steps, "after the save")
            if self.ledger:
                self.write(verified=epoch, report=str(self.ledger.verify()))
            self.save(steps)
        self.write(end=flat(self.model).sum().item())


def main():
    folder, launch, num_workers, context = sys.argv[1:]
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    faulthandler.dump_traceback_later(100, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Run(Path(folder), launch, int(num_workers), context).train()
    dist.destroy_process_group()
    os._exit(0)  # torch 2.13 may abort a process that ends as usual while gloo's threads let go of a message


if __name__ == "__main__":
    main()
