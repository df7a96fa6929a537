"""What ShardedWebDataset reads: how much and in how many requests, and what it does where it can't."""

import os
import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
from tar_files import samples_of_webdataset, tar_of

from fastshard import DataLoader
from fastshard.webdataset import ShardedWebDataset, ShardError, ShardWarning, TarIndex
from fastshard.webdataset.reading import GAP, Reader

FIELDS = ("png", "cls")


def shard_of(first, count, size=700):
    return tar_of([f"{number:05}.{field}" for number in range(first, first + count) for field in FIELDS], size=size)


@pytest.fixture
def shards(tmp_path):
    """Four shards of ten samples each."""
    paths = [tmp_path / f"shard-{shard}.tar" for shard in range(4)]
    for shard, path in enumerate(paths):
        path.write_bytes(shard_of(10 * shard, 10))
    return paths


def make(shards, batch_size=None, rank=0, num_replicas=1, **options):
    return ShardedWebDataset(
        list(map(str, shards)), batch_size=batch_size, rank=rank, num_replicas=num_replicas, progress=False, **options
    )


def keys(samples):
    return [int(sample["__key__"]) for sample in samples]


def as_they_are(samples):
    """A collate_fn."""
    return samples


def test_the_ranks_together_read_each_byte_once_but_for_the_gaps(shards):
    read = 0
    for rank in range(3):
        dataset = make(shards, 2, rank, 3, uneven="keep")
        list(dataset)
        assert dataset.statistics.samples == len(dataset)
        read += dataset.statistics.bytes_read
    size = sum(path.stat().st_size for path in shards)
    assert 40 * 2 * 700 <= read <= size


@pytest.mark.parametrize("num_workers", [0, 2])
def test_neighbours_come_in_one_request_and_workers_count_for_all(shards, num_workers):
    dataset = make(shards, 5, shuffle=False)
    seen = [
        int(s["__key__"])
        for batch in DataLoader(dataset, 5, num_workers=num_workers, collate_fn=as_they_are)
        for s in batch
    ]
    assert seen == list(range(40))
    statistics = dataset.statistics
    assert (statistics.samples, statistics.replaced) == (40, 0)
    # Batches of five, of which 1, 2, 4 are asked for together: so [0, 5), [5, 15) in two shards, [15, 35) in three, and
    # the rest. With two workers each has every second batch, and no two of one shard.
    assert statistics.requests == (7 if num_workers == 0 else 8)
    assert pickle.loads(pickle.dumps(dataset)).statistics == statistics


def test_samples_far_apart_are_not_read_through(tmp_path):
    path = tmp_path / "large.tar"
    path.write_bytes(shard_of(0, 6, size=2 * GAP))
    reader = Reader(TarIndex.build(str(path), progress=False))
    got = list(reader.read(np.array([5, 0, 3])))
    assert [sample["__index__"] for sample in got] == [5, 0, 3]
    wanted = samples_of_webdataset(path.read_bytes())
    assert [{k: v for k, v in s.items() if k not in ("__url__", "__index__")} for s in got] == [
        wanted[number] for number in (5, 0, 3)
    ]
    statistics = reader.counters.total()
    assert statistics.requests == 3
    assert statistics.bytes_read == 3 * (2 * 2 * GAP + 512)


def test_a_large_part_is_read_piece_by_piece(shards, monkeypatch):
    monkeypatch.setattr("fastshard.webdataset.reading.MOST_TOGETHER_LOCAL", 5_000)
    monkeypatch.setattr("fastshard.webdataset.reading.MOST_AT_ONCE", 4_000)
    dataset = make(shards, shuffle=False)
    assert keys(dataset) == list(range(40))
    assert dataset.statistics.requests > 16
    dataset = make(shards)
    assert sorted(keys(dataset)) == list(range(40))


def broken(shards, how):
    """Breaks shard 2, after it was indexed; gives the samples that can't be read any more."""
    path = shards[2]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(shard_of(20, 10, size=701))
    return set(range(20, 30))


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_shard_that_can_not_be_read_is_named_with_its_offset(shards, how):
    dataset = make(shards)
    broken(shards, how)
    with pytest.raises(ShardError, match=r"shard-2\.tar: offset \d+: (No such file|it changed since it was indexed)"):
        list(dataset)


@pytest.mark.parametrize("how", ["gone", "another"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_skip_gives_others_in_their_place_and_all_ranks_stay_even(shards, how, shuffle):
    datasets = [make(shards, 3, rank, 3, on_error="skip", shuffle=shuffle) for rank in range(3)]
    counts = [len(dataset) for dataset in datasets]
    bad, seen = broken(shards, how), Counter()
    for dataset, count in zip(datasets, counts, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = keys(dataset)
        assert len(got) == count == 14
        lost = dataset.statistics.replaced
        assert dataset.statistics.samples == count - lost
        assert [w.category for w in caught] == [ShardWarning] * (lost > 0)
        seen.update(got)
    assert set(seen) == set(range(40)) - bad
    assert sum(dataset.statistics.replaced for dataset in datasets) >= len(bad)


def test_skip_of_a_shard_that_ends_early_loses_only_its_end(shards):
    dataset = make(shards, shuffle=False, on_error="skip")
    for first in range(3):  # its file is open already, so only its end is missing
        assert next(iter(dataset))["__index__"] == 0, first
    reader = Reader(dataset.index, "skip")
    list(reader.read(np.arange(20, 22)))
    whole = shards[2].stat().st_size
    os.truncate(shards[2], whole // 2)
    with pytest.warns(ShardWarning, match=r"shard-2\.tar: offset \d+: \d+ bytes asked for and \d+ got"):
        got = [sample["__index__"] for sample in reader.read(np.arange(18, 32))]
    last = max(number for number in got if number < 30)
    assert 20 < last < 29
    assert got == [*range(18, last + 1), *[last] * (29 - last), 30, 31]


def test_skip_with_nothing_left_is_an_error(shards):
    dataset = make(shards, on_error="skip")
    for path in shards:
        path.unlink()
    with (
        pytest.warns(ShardWarning, match="other samples are given in the place"),
        pytest.raises(ShardError, match=r"no shard can be read any more; the last error: .*No such file"),
    ):
        list(dataset)


def test_skip_leaves_out_shards_that_can_not_be_indexed(shards):
    shards[1].write_bytes(shards[1].read_bytes()[:3_000])
    with pytest.warns(ShardWarning, match=r"left out: .*shard-1\.tar: offset \d+"):
        dataset = make(shards, on_error="skip")
    assert len(dataset) == 30
    with pytest.raises(ShardError, match=r"shard-1\.tar"):
        make(shards)
    with pytest.raises(ValueError, match="on_error must be one of 'raise', 'skip', got on_error='ignore'"):
        make(shards[2:], on_error="ignore")


def test_names_that_lead_out_of_a_folder_are_data(tmp_path):
    path = tmp_path / "shard.tar"
    path.write_bytes(tar_of(["../../x.png", "../../x.cls", "/etc/y.png"], size=9))
    found = list(make([path], shuffle=False))
    assert [(sample["__key__"], len(sample["png"])) for sample in found] == [("../../x", 9), ("/etc/y", 9)]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["shard.tar", "shard.tar.fsi"]


def test_remote_samples_come_by_ranges_and_only_those(server, tmp_path):
    for shard in range(3):
        (server.folder / "www" / f"read-{shard}.tar").write_bytes(shard_of(10 * shard, 10, size=5_000))
    index = TarIndex.build(f"{server.url}/read-{{0..2}}.tar", cache=tmp_path)
    server.gets()
    dataset = ShardedWebDataset(index, batch_size=2, rank=1, num_replicas=2, window=1)
    got = keys(dataset)
    assert len(got) == 15
    requests = server.gets()
    assert {status for status, _ in requests} == {206}
    assert len(requests) == dataset.statistics.requests <= 15
    assert sum(size for _, size in requests) == dataset.statistics.bytes_read
    assert 15 * 2 * 5_000 <= dataset.statistics.bytes_read <= 15 * (2 * 5_632 + GAP)
    loader = DataLoader(dataset, 2, num_workers=2, collate_fn=as_they_are)
    dataset.set_epoch(0)
    assert [int(sample["__key__"]) for batch in loader for sample in batch] == got


def test_a_remote_shard_that_changed_is_seen_to(server, tmp_path):
    path, url = server.folder / "www" / "other.tar", f"{server.url}/other.tar"
    path.write_bytes(shard_of(0, 10))
    dataset = make([url], cache=tmp_path)
    path.write_bytes(shard_of(10, 10))
    os.utime(path, (0, 0))
    with pytest.raises(ShardError, match=r"other\.tar: offset \d+: it changed since it was indexed"):
        list(dataset)
    path.unlink()
    dataset.set_epoch(1)
    with pytest.raises(ShardError, match=r"other\.tar: offset \d+: "):
        list(dataset)
