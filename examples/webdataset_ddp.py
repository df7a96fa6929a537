"""Trains on handwritten digits in WebDataset shards with DDP, and proves that every sample came exactly once an epoch.

    torchrun --standalone --nproc-per-node 2 examples/webdataset_ddp.py --num-workers 2

It needs `pip install '.[demo,webdataset]'`. Network, test set and checkpoints are those of digits_resume.py, and so it
may be stopped and goes on in any number of processes and workers. The training set is in tar files here, which
webdataset's own writer fills with PNG. Each rank reads a run of the shuffled order, from few files; a file is cut
between two ranks where the counts demand it.
"""

from pathlib import Path

import torch.distributed as dist
import webdataset as wds
from digits_ddp import end_process, load_data
from digits_resume import Job, make_parser, start

from fastshard import DataLoader, Ledger
from fastshard.webdataset import ShardedWebDataset


def write_shards(dataset, folder):
    """Writes images and labels, 100 a shard; the last one has what is left."""
    folder.mkdir(parents=True, exist_ok=True)
    with wds.ShardWriter(str(folder / "digits-%03d.tar"), maxcount=100, verbose=0) as writer:
        for index, image, label in dataset:
            writer.write({"__key__": f"{index:05}", "png": image[0].numpy(), "cls": int(label)})


def with_channel(image):
    """Makes (8, 8) (1, 8, 8)."""
    return image.unsqueeze(0)


def ids_of(batch):
    """What the ledger counts: the samples' numbers in the shards."""
    return batch[0]


def main():
    """Writes the shards if there are none, trains from them, and tests; returns the exit status."""
    parser = make_parser(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("digits"), help="of shards and checkpoint, for all ranks")
    options, batch_size, device = start(parser)
    train_set, test_set = load_data()
    if dist.get_rank() == 0 and not any(options.folder.glob("*.tar")):
        write_shards(train_set, options.folder)
    dist.barrier()

    stages = [wds.decode("torchl"), wds.map_dict(png=with_channel), wds.to_tuple("__index__", "png", "cls")]
    dataset = ShardedWebDataset(
        sorted(options.folder.glob("*.tar")), batch_size=batch_size, stages=stages, progress=False
    )
    loader = DataLoader(dataset, batch_size, num_workers=options.num_workers, ledger=Ledger(), ids=ids_of)
    Job(loader, options.folder / "checkpoint.pt", device).run(options, test_set, batch_size)
    return 0


if __name__ == "__main__":
    end_process(main())
