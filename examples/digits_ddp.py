"""Trains a small network on handwritten digits with DDP, and proves which samples every process received.

    torchrun --standalone --nproc-per-node 2 examples/digits_ddp.py
    python examples/digits_ddp.py                                      # the same, in one process

The data are scikit-learn's 1,797 real images of 8x8 pixels. What differs from a script with torch's own sampler and
loader is their import, and the ledger, into which the loader writes what it hands out. At the end of each epoch rank 0
prints what the ledger proves of all ranks; if a sample had not come exactly once, `verify` would raise on every rank.

After the last epoch comes the same from another source, the indices in the batches themselves: a table of what all
ranks together received. The exit status is 1 if that is not every training sample once an epoch.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset
from tqdm import tqdm

from fastshard import DataLoader, DistributedSampler, Ledger
from fastshard.audit import format_coverage, measure_coverage, problems


class Digits(Dataset):
    """Images, labels, and each sample's own index, so that a rank can say what it received."""

    def __init__(self, images, labels):
        self.images = torch.as_tensor(images, dtype=torch.float32).unsqueeze(1) / 16  # pixels are 0..16
        self.labels = torch.as_tensor(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index, self.images[index], self.labels[index]


def load_data():
    """Returns the training and the test set: 1,437 and 360 images, the same split on every rank and in every run."""
    digits = load_digits()
    split = train_test_split(digits.images, digits.target, test_size=360, random_state=0, stratify=digits.target)
    train_images, test_images, train_labels, test_labels = split
    return Digits(train_images, train_labels), Digits(test_images, test_labels)


def make_model():
    """Returns the untrained network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def start_process_group():
    """Joins the other processes and returns this one's device: its own GPU where there is one for each, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # torchrun's processes find each other by the environment; without it this is a group of one.
    group = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None, **group)
    return device


def end_process(status):
    """Ends at once. DDP keeps gloo's threads alive, and if one of them lets go of a message while Python takes itself
    down, torch 2.13 aborts (pytorch/pytorch#190489).
    """
    sys.stdout.flush()
    os._exit(status)


def train_epoch(model, loader, optimizer, device, title):
    """Returns the loss over all ranks' draws, and the ids of the samples that this rank received, in their order."""
    received, loss_sum = [], torch.zeros(2, dtype=torch.float64, device=device)
    for ids, images, labels in tqdm(loader, desc=title, disable=dist.get_rank() != 0):
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over the ranks here
        optimizer.step()
        received.append(ids)
        loss_sum += torch.tensor([loss.item() * len(ids), len(ids)], device=device)
    dist.all_reduce(loss_sum)
    return (loss_sum[0] / loss_sum[1]).item(), torch.cat(received).numpy()


@torch.no_grad()
def count_correct(model, dataset, batch_size, device):
    """Returns how many samples of `dataset` the ranks together classify rightly, and how many they looked at."""
    sampler = DistributedSampler(dataset, shuffle=False, uneven="keep")  # padding would count some samples twice
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for _, images, labels in DataLoader(dataset, batch_size, sampler=sampler):
        right = model(images.to(device)).argmax(1) == labels.to(device)
        counts += torch.stack([right.sum(), torch.tensor(len(labels), device=device)])
    dist.all_reduce(counts)
    return counts.tolist()


def main():
    """Trains, tests and audits; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3, choices=range(1, 1001), metavar="N", help="at least 1")
    parser.add_argument("--batch-size", type=int, default=16, help="samples per step on each rank")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights and of the order of the samples")
    options = parser.parse_args()

    device = start_process_group()
    is_first = dist.get_rank() == 0
    torch.manual_seed(options.seed)
    train_set, test_set = load_data()
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = DistributedSampler(train_set, seed=options.seed)
    ledger = Ledger()
    loader = DataLoader(train_set, options.batch_size, sampler=sampler, ledger=ledger)

    received = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        loss, ids = train_epoch(model, loader, optimizer, device, f"epoch {epoch}")
        received.append(ids)
        report = ledger.verify()  # on all ranks: each needs what the others have drawn
        if is_first:
            print(f"epoch {epoch}: loss {loss:.4f}\nepoch {epoch}: {report}", flush=True)

    # Ranks may have different numbers of test batches, so not through DDP, whose forward may wait for the other ranks.
    correct, total = count_correct(model.module, test_set, options.batch_size, device)
    everything = [None] * dist.get_world_size() if is_first else None
    dist.gather_object((received, sampler.num_padding), everything)
    dist.destroy_process_group()
    if not is_first:
        # Rank 0 speaks for all: at the first failure torchrun ends the others, perhaps before they have spoken.
        return 0
    ranks, num_padding = zip(*everything, strict=True)
    coverage = [measure_coverage(ids, num_padding, len(train_set)) for ids in zip(*ranks, strict=True)]
    print(f"test accuracy: {correct}/{total} = {correct / total:.2%}")
    print(f"\nReceived by all ranks together, world size {len(ranks)}:\n{format_coverage(coverage)}", flush=True)
    return 1 if problems(coverage) else 0


if __name__ == "__main__":
    end_process(main())
