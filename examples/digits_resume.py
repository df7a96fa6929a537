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
    """Everything that a checkpoint holds."""

    def __init__(self, dataset, batch_size, num_workers, path, device):
        self.path, self.device = path, device
        self.model = DistributedDataParallel(make_model().to(device))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.ledger = Ledger()
        sampler = DistributedSampler(dataset, seed=0)
        self.loader = DataLoader(dataset, batch_size, sampler=sampler, num_workers=num_workers, ledger=self.ledger)

    def step(self, images, labels):
        """Trains on one batch."""
        loss = nn.functional.cross_entropy(self.model(images.to(self.device)), labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over the ranks here
        self.optimizer.step()

    def save(self):
        """Writes a checkpoint. All ranks call it after the same step."""
        self.ledger.gather()  # rank 0 writes for all, so it has to know what all have drawn
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


def main():
    """Trains from the checkpoint to the end, or until it is stopped; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=32, help="samples per step of all ranks together")
    parser.add_argument("--num-workers", type=int, default=0, help="may be another number after each stop")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--stop-after-steps", type=int, metavar="STEPS", help="end then, as if preempted, without saving"
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="where all ranks find it")
    options = parser.parse_args()

    device = start_process_group()
    batch_size, left = divmod(options.global_batch, dist.get_world_size())
    if left:
        parser.error(
            f"--global-batch must be a multiple of the {dist.get_world_size()} ranks, got {options.global_batch}"
        )
    torch.manual_seed(0)
    train_set, test_set = load_data()
    job = Job(train_set, batch_size, options.num_workers, options.checkpoint, device)
    job.load()

    steps = 0
    for epoch in range(job.loader.epoch, options.epochs):
        job.loader.set_epoch(epoch)  # of the epoch that was loaded, the loader gives what is left
        for _, images, labels in job.loader:
            job.step(images, labels)
            steps += 1
            if steps % options.save_every == 0:
                job.save()
            if steps == options.stop_after_steps:
                dist.destroy_process_group()
                return 0
        report = job.ledger.verify()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {report}", flush=True)
        job.save()
    correct, total = count_correct(job.model.module, test_set, batch_size, device)
    if dist.get_rank() == 0:
        print(f"test accuracy: {correct}/{total} = {correct / total:.2%}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    end_process(main())
