"""scikit-learn's digits as WebDataset shards of uneven sizes, written by webdataset's own writer as PNG."""

import itertools
import random

import webdataset as wds

# Of a sample: its number, its image of 8x8 pixels in 0..16, its label.
STAGES = (wds.decode("torchl8"), wds.to_tuple("__index__", "png", "cls"))


def write_digit_shards(folder, length, num_shards):
    """Writes the first `length` digits, in their order, so that a sample's number is its digit's; returns the paths."""
    from sklearn.datasets import load_digits  # here, because collecting the tests should not wait for SciPy

    images, labels = load_digits().images[:length].astype("uint8"), load_digits().target[:length]
    cuts = sorted(random.Random(num_shards).sample(range(1, length), num_shards - 1))
    folder.mkdir(parents=True, exist_ok=True)
    with wds.ShardWriter(str(folder / "digits-%03d.tar"), verbose=0) as writer:
        for start, stop in itertools.pairwise([0, *cuts, length]):
            if start:
                writer.next_stream()
            for number in range(start, stop):
                writer.write({"__key__": f"{number:05}", "png": images[number], "cls": int(labels[number])})
    return [str(path) for path in sorted(folder.glob("*.tar"))]
