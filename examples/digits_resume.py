"""Trains on handwritten digits, stops anywhere, and goes on from there on as many processes as there are then.

    torchrun --standalone --nproc-per-node 2 examples/digits_resume.py --stop-after-steps 64
    python examples/digits_resume.py                       # goes on in one process, or under torchrun in any number

Data and network are those of digits_ddp.py; here is what a job needs that may be stopped. It keeps its global batch, so
it trains on the same global batches on any number of processes that divides it. After each epoch rank 0 prints what the
ledger proves of all ranks, over all restarts.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from digits_ddp import count_correct, end_process, load_data, make_model, start_process_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fastshard import DataLoader, DistributedSampler, Ledger


class Job:
    """Everything that a checkpoint holds: the model, the optimizer, and the loader with its ledger."""

    def __init__(self, loader, path, device):
        self.loader, self.path, self.device = loader, path, device
        self.model = DistributedDataParallel(make_model().to(device))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def step(self, images, labels):
        """Trains on one batch."""
        loss = nn.functional.cross_entropy(self.model(images.to(self.device)), labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over the ranks here
        self.optimizer.step()

    def save(self):
        """Writes a checkpoint. All ranks call it after the same step."""
        self.loader.ledger.gather()  # rank 0 writes for all, so it has to know what all have drawn
        if dist.get_rank() != 0:
            return
        new = self.path.with_suffix(".new")
        with new.open("wb") as file:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "loader": self.loader.state_dict(),  # the place, and the ledger's account
            }
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)  # whenever the job dies, there is a whole checkpoint: the former one or this one

    def load(self):
        """Goes on from the checkpoint, if there is one. Every rank reads the same file."""
        if not self.path.exists():
            return
        state = torch.load(self.path, map_location=self.device)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        if dist.get_rank() == 0:
            epoch, consumed = state["loader"]["epoch"], state["loader"]["consumed"]
            print(f"goes on in epoch {epoch} after {consumed:,} samples", flush=True)

    def train(self, options):
        """Trains to the end, or until it is stopped; returns whether it came to the end."""
        steps = 0
        for epoch in range(self.loader.epoch, options.epochs):
            self.loader.set_epoch(epoch)  # of the epoch that was loaded, the loader gives what is left
            for _, images, labels in self.loader:
                self.step(images, labels)
                steps += 1
                if steps % options.save_every == 0:
                    self.save()
                if steps == options.stop_after_steps:
                    return False
            report = self.loader.ledger.verify()
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {report}", flush=True)
            self.save()
        return True

    def run(self, options, test_set, batch_size):
        """Trains from the checkpoint, and tests unless it is stopped."""
        self.load()
        if self.train(options):
            correct, total = count_correct(self.model.module, test_set, batch_size, self.device)
            if dist.get_rank() == 0:
                print(f"test accuracy: {correct}/{total} = {correct / total:.2%}")
        dist.destroy_process_group()


def make_parser(description):
    """Returns the parser of the options that a job has wherever its samples come from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=32, help="samples per step of all ranks together")
    parser.add_argument("--num-workers", type=int, default=0, help="may be another number after each stop")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--stop-after-steps", type=int, metavar="STEPS", help="end then, as if preempted, without saving"
    )
    return parser


def start(parser):
    """Joins the other processes; returns the options, the samples per step on each rank, and this one's device."""
    options = parser.parse_args()
    device = start_process_group()
    batch_size, left = divmod(options.global_batch, dist.get_world_size())
    if left:
        parser.error(
            f"--global-batch must be a multiple of the {dist.get_world_size()} ranks, got {options.global_batch}"
        )
    torch.manual_seed(0)
    return options, batch_size, device


def main():
    """Trains from the checkpoint to the end, or until it is stopped; returns the exit status."""
    parser = make_parser(__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="where all ranks find it")
    options, batch_size, device = start(parser)
    train_set, test_set = load_data()
    sampler, workers = DistributedSampler(train_set, seed=0), options.num_workers
    loader = DataLoader(train_set, batch_size, sampler=sampler, num_workers=workers, ledger=Ledger())
    Job(loader, options.checkpoint, device).run(options, test_set, batch_size)
    return 0


if __name__ == "__main__":
    end_process(main())
