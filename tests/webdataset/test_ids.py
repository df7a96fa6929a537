"""Ids of samples: numbers of an index, and hashes of names where there is none; and the ledger that takes them."""

import gc
import subprocess
import sys

import numpy as np
import pytest
import webdataset as wds
from tar_files import tar_of

from fastshard import Ledger, LedgerError
from fastshard.ledger import ListedExpected
from fastshard.webdataset import ShardedWebDataset, hashed_ids, sample_ids

FROZEN = [2574460310225273344, 2275651812175905155, 5530793992962823561]  # of ('a', 'b'), ('a', 'c'), ('b', 'c')


@pytest.fixture
def shards(tmp_path):
    """Two shards, with the same keys in both."""
    paths = [tmp_path / f"shard-{shard}.tar" for shard in range(2)]
    for path in paths:
        path.write_bytes(tar_of([f"{number}.png" for number in range(5)]))
    return list(map(str, paths))


def test_ids_are_numbers_of_the_index_where_there_is_one(shards):
    samples = list(ShardedWebDataset(shards, rank=0, num_replicas=1, progress=False))
    assert sorted(sample_ids(samples).tolist()) == list(range(10))
    assert sample_ids(samples[0]).tolist() == [samples[0]["__index__"]]
    assert sample_ids([]).dtype == np.int64


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_ids_are_hashes_of_shard_and_key_where_there_is_none(shards):
    def epoch():
        return list(wds.WebDataset(shards, shardshuffle=2, seed=0).shuffle(10, seed=0))

    ids = sample_ids(epoch())
    gc.collect()
    assert len(set(ids.tolist())) == 10
    assert ids.min() >= 0
    ledger = Ledger()
    ledger.begin(ListedExpected(np.sort(ids)))
    for sample in epoch():
        ledger.record(sample_ids(sample))
    gc.collect()
    assert str(ledger.verify()) == "every one of the 10 samples of a list exactly once, 0 padded draws"
    ledger = Ledger()
    ledger.begin(ListedExpected(ids))
    ledger.record(ids[:9])
    ledger.record(ids[:1])
    with pytest.raises(LedgerError, match="10 draws as there should be, but not of the right samples"):
        ledger.verify()
    ledger.record(ids[9:])
    with pytest.raises(LedgerError, match="1 draw too many"):
        ledger.verify()


def test_hashes_do_not_depend_on_the_process_and_are_frozen():
    code = "from fastshard.webdataset import hashed_ids; print(hashed_ids(['a', 'a', 'b'], ['b', 'c', 'c']).tolist())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    ids = hashed_ids(["a", "a", "b"], ["b", "c", "c"])
    assert printed.stdout == f"{ids.tolist()}\n"
    assert ids.tolist() == FROZEN
    assert hashed_ids(["ab"], ["c"]) != hashed_ids(["a"], ["bc"])
    assert len(hashed_ids(["a"], ["\udcff"])) == 1, "a key that is no UTF-8"


def test_what_is_no_list_of_ids_is_refused():
    with pytest.raises(ValueError, match="got 7 twice"):
        ListedExpected([7, 3, 7])
    with pytest.raises(IndexError, match=r"ids must be in \[0, 9223372036854775807\), got ids\[0\]=-1"):
        ListedExpected([-1])
    with pytest.raises(ValueError, match="shorter"):
        hashed_ids(["a", "b"], ["c"])
    with pytest.raises(KeyError, match="__url__"):
        sample_ids({"__key__": "a"})


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_the_parts_of_ranks_make_the_whole(parts):
    expected = ListedExpected([5, 2**62, 1, 9])
    whole = expected.fingerprint(0, 0, 1)
    total = expected.fingerprint(0, 0, parts)
    for part in range(1, parts):
        total = total + expected.fingerprint(0, part, parts)
    assert total == whole
    assert whole.count == 4
