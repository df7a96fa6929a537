"""Ids of samples for a Ledger: their numbers, where an index has numbered them, else hashes of their names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check

if TYPE_CHECKING:
    import numpy.typing as npt


def hashed_ids(urls: Iterable[str], keys: Iterable[str]) -> npt.NDArray[np.int64]:
    """An id for each sample from its shard and key: the same in every process, on every machine.

    64 bits of BLAKE2b, of which the ledger takes 63. Of n samples two have one id with a probability of about
    n^2 / 2^64: 5e-8 for a million of them.

    Args:
        urls: of each sample its shard, spelled the same everywhere.
        keys: of each its key in the shard.

    Returns:
        int64, each in [0, 2^63 - 1).

    Raises:
        ValueError: there are not as many urls as keys.
    """
    return np.array([_hash(url, key) for url, key in zip(urls, keys, strict=True)], np.int64)


def sample_ids(samples: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> npt.NDArray[np.int64]:
    """Ids of samples in webdataset's form, for `Ledger.record` and `DataLoader(ids=)`.

    Args:
        samples: one, or a list of them. Those of ShardedWebDataset have their number as "__index__", and that is their
            id; others have "__url__" and "__key__", and get that of `hashed_ids`.

    Returns:
        int64, one for each sample.

    Raises:
        KeyError: a sample has neither.
    """
    listed = [samples] if isinstance(samples, Mapping) else samples
    return np.array([_id(sample) for sample in listed], np.int64)


def _id(sample: Mapping[str, Any]) -> int:
    number = sample.get("__index__")
    return _hash(sample["__url__"], sample["__key__"]) if number is None else int(number)


def _hash(url: str, key: str) -> int:
    name = url.encode("utf-8", "surrogateescape") + b"\0" + key.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") % _check.MAX_LENGTH
