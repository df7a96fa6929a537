"""TarIndex: what it says of samples, where it is saved, when it is made anew, and how it travels."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from tar_files import samples_by_range, samples_of_webdataset, tar_of

from fastshard.webdataset import ShardError, ShardWarning, TarIndex, sources
from fastshard.webdataset import index as module


@pytest.fixture
def shards(tmp_path):
    """Three shards of 3, 1 and 2 samples."""
    for shard, keys in enumerate(("abc", "d", "ef")):
        names = [f"{key}.{field}" for key in keys for field in ("png", "cls")]
        (tmp_path / f"shard-{shard}.tar").write_bytes(tar_of(names, size=100 * shard + 1))
    return tmp_path


def change(path, data):
    """Writes a file and makes sure that its time is another one than before."""
    before = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(before + 1, before + 1))


def test_samples_are_numbered_through_all_shards(shards):
    index = TarIndex.build(f"{shards}/shard-{{0..2}}.tar")
    assert index.urls == [f"{shards}/shard-{i}.tar" for i in range(3)]
    assert index.samples_per_shard.tolist() == [3, 1, 2]
    assert index.samples_per_shard.dtype == np.int64
    assert len(index) == 6
    assert [index.locate(i) for i in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert [index.key(i) for i in range(6)] == list("abcdef")
    assert index.fields(4) == {"png": (512, 201), "cls": (1536, 201)}
    assert repr(index) == "TarIndex(3 shards, 6 samples, 0 skipped)"
    for wrong in (-1, 6):
        with pytest.raises(IndexError, match=rf"sample must be in \[0, 6\), got sample={wrong}"):
            index.locate(wrong)


def test_ranges_of_many_samples_are_those_of_each(shards):
    index = TarIndex.build([shards / f"shard-{i}.tar" for i in (2, 0, 1)])
    samples = [5, 0, 3, 3, 1, 4, 2]
    numbers, begins, ends = index.ranges(samples)
    for sample, shard, begin, end in zip(samples, numbers, begins, ends, strict=True):
        assert shard == index.locate(sample)[0]
        spans = index.fields(sample).values()
        assert (begin, end) == (min(start for start, _ in spans), max(start + size for start, size in spans))
    assert [column.dtype for column in (numbers, begins, ends)] == [np.int64] * 3
    assert [column.tolist() for column in index.ranges([])] == [[], [], []]
    with pytest.raises(IndexError, match=r"samples must be in \[0, 6\), got samples\[1\]=6"):
        index.ranges([0, 6])


def test_a_saved_index_is_loaded_and_no_shard_is_read_again(shards, monkeypatch):
    first = TarIndex.build(f"{shards}/shard-{{0..2}}.tar")
    assert sorted(path.name for path in shards.glob("*.fsi")) == [f"shard-{i}.tar.fsi" for i in range(3)]
    assert len(list(shards.iterdir())) == 6  # nothing else is left there
    monkeypatch.setattr(sources, "read_headers", None)
    for again in (TarIndex.build(first.urls), TarIndex.load(first.urls)):
        assert [again.fields(i) for i in range(6)] == [first.fields(i) for i in range(6)]
        assert [again.key(i) for i in range(6)] == list("abcdef")


def test_a_stale_index_is_noticed_by_load_and_made_anew_by_build(shards):
    path = shards / "shard-1.tar"
    url = str(path)
    before = TarIndex.build(url)
    for data in (tar_of(["x.png", "y.png"]), tar_of(["x.png", "z.png"])):  # another size, then another time alone
        change(path, data)
        with pytest.raises(ShardError, match=r"shard-1\.tar: it has changed since it was indexed: .* then, .* now"):
            TarIndex.load(url)
        index = TarIndex.build(url)
        assert samples_by_range(index.shard(0), data) == samples_of_webdataset(data)
        assert len(TarIndex.load(url)) == 2
    with pytest.raises(ShardError, match=r"shard-1\.tar\.fsi can't be used: another one than when"):
        before.key(0)


def damages():
    yield "empty", lambda data: data[:0]
    yield "not ours", lambda data: b"x" * len(data)
    yield "cut off", lambda data: data[:-1]
    yield "longer", lambda data: data + b"x"
    yield "another version", lambda data: data[:8] + b"\x02" + data[9:]
    yield "negative count", lambda data: data[:24] + b"\xff" * 8 + data[32:]
    yield "huge count", lambda data: data[:31] + b"\x7f" + data[32:]
    yield "one bit", lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:]


@pytest.mark.parametrize("damage", [damage for _, damage in damages()], ids=[name for name, _ in damages()])
def test_a_damaged_index_is_made_anew_with_a_warning(damage, shards):
    url = str(shards / "shard-0.tar")
    TarIndex.build(url)
    path = Path(url + ".fsi")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    with pytest.raises(ShardError, match=r"shard-0\.tar: its saved index .*shard-0\.tar\.fsi can't be used: "):
        TarIndex.load(url)
    with pytest.warns(ShardWarning, match=r"shard-0\.tar: its saved index .* can't be used: .*; it is made anew"):
        assert TarIndex.build(url).key(2) == "c"
    assert path.read_bytes() == good


def test_without_a_saved_index_load_says_how_to_make_one(shards):
    with pytest.raises(ShardError, match=r"shard-0\.tar: no saved index; TarIndex\.build makes one"):
        TarIndex.load(shards / "shard-0.tar")


def test_a_cache_folder_holds_shards_of_the_same_name_apart(shards):
    (shards / "other").mkdir()
    (shards / "other" / "shard-0.tar").write_bytes(tar_of(["o.x"]))
    urls = [shards / "shard-0.tar", shards / "other" / "shard-0.tar"]
    cache = shards / "cache"
    index = TarIndex.build(urls, cache=cache)
    assert [index.key(i) for i in range(len(index))] == ["a", "b", "c", "o"]
    assert len(list(cache.iterdir())) == 2
    assert not list(shards.glob("*.fsi"))
    assert len(TarIndex.load(urls, cache=cache)) == 4


def test_where_the_folder_cant_be_written_the_users_cache_is_and_then_memory(shards, monkeypatch):
    url = str(shards / "shard-0.tar")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shards / "home"))
    Path(url + ".fsi").mkdir()  # as root too, no file can be put there
    with pytest.warns(ShardWarning, match="can't be used"):
        index = TarIndex.build(url)
    saved = list((shards / "home" / "fastshard" / "shards").iterdir())
    assert len(saved) == 1
    saved[0].unlink()
    saved[0].mkdir()
    with pytest.warns(ShardWarning, match="can't be used"):
        in_memory = TarIndex.build(url)
    with pytest.raises(ShardError, match="can't be used"):
        index.key(0)
    assert [pickle.loads(pickle.dumps(in_memory)).key(i) for i in range(3)] == list("abc")


def fields_of(index, sample):
    return os.getpid(), index.key(sample), index.fields(sample)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_an_index_travels_to_another_process_by_path(start, shards, monkeypatch):
    monkeypatch.chdir(shards)
    index = TarIndex.build("shard-{0..2}.tar")
    assert index.key(0) == "a"
    assert len(pickle.dumps(index)) < 1000
    monkeypatch.chdir("/")  # the other process may work elsewhere
    with ProcessPoolExecutor(1, get_context(start)) as pool:
        process, *there = pool.submit(fields_of, index, 5).result(timeout=100)
    assert process != os.getpid()
    assert there == ["f", index.fields(5)]


def test_more_shards_than_are_kept_open_can_be_used_in_any_order(shards, monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    index = TarIndex.build(f"{shards}/shard-{{0..2}}.tar")
    assert "".join(index.key(i) for i in (0, 3, 5, 0, 4, 1, 3, 2)) == "adfaebdc"
    assert len(index._open) <= 2


def test_a_sample_without_a_required_field_is_named(shards):
    (shards / "odd.tar").write_bytes(tar_of(["x.png", "x.cls", "y.cls", "z.png"]))
    index = TarIndex.build([shards / "shard-0.tar", shards / "odd.tar"])
    with pytest.raises(ShardError, match=r"odd\.tar: offset 2560, key 'y': no field 'png'; it has cls"):
        index.require("png")
    with pytest.raises(ShardError, match=r"shard-0\.tar: offset 512, key 'a': no field 'json'; it has png, cls"):
        index.require("png", "json")
    TarIndex.build(shards / "shard-0.tar").require("cls", "png")


@pytest.mark.parametrize(
    ("urls", "error", "words"),
    [
        ([], ValueError, r"urls must name at least one shard, got urls=\[\]"),
        (5, TypeError, r"urls must be a url or a list of urls, got urls\[0\]=5"),
        (["a.tar", None], TypeError, r"got urls\[1\]=None"),
        ("pipe:cat a.tar", ValueError, "a shard must be a file that can be read from any place of it"),
    ],
)
def test_urls_that_are_none_are_refused(urls, error, words):
    with pytest.raises(error, match=words):
        TarIndex.build(urls)


def test_wrong_arguments_are_named(shards):
    url = shards / "shard-0.tar"
    with pytest.raises(ValueError, match="on_error must be one of 'raise', 'skip', got on_error='warn'"):
        TarIndex.build(url, on_error="warn")
    with pytest.raises(ValueError, match=r"threads must be in \[1, 1025\), got threads=0"):
        TarIndex.build(url, threads=0)
    with pytest.raises(TypeError, match="progress must be True or False, got progress='no'"):
        TarIndex.build(url, progress="no")


def test_nothing_optional_is_loaded_for_local_shards(shards):
    code = (
        "import sys, torch; before = set(sys.modules); import fastshard.webdataset as w; "
        f"print(len(w.TarIndex.build([{str(shards / 'shard-0.tar')!r}], progress=False)), "
        "(set(sys.modules) - before) & {'fsspec', 'webdataset', 'braceexpand', 'aiohttp', 'tqdm'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "3 set()"
