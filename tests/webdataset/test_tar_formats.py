"""Index files of DALI and wids, and the bytes of our own as docs/tar_index.md has them."""

import json
import struct
import zlib

import numpy as np
import pytest
from tar_files import tar_of

from fastshard.webdataset import ShardError, TarIndex, read_idx, read_wids, write_idx, write_wids


@pytest.fixture
def index(tmp_path):
    (tmp_path / "shard-0.tar").write_bytes(tar_of(["d/a.png", "d/a.seg.CLS", "b.png"], size=3))
    (tmp_path / "shard-1.tar").write_bytes(tar_of(["c.png"], size=700))
    return TarIndex.build([tmp_path / "shard-0.tar", tmp_path / "shard-1.tar"])


def test_dalis_index_is_written_as_wds2idx_writes_it(index, tmp_path):
    write_idx(index, 0, tmp_path / "shard-0.idx")
    # Version 1.2 as wds2idx lays it out; it would leave the field's capitals.
    wanted = "v1.2 2\npng 512 3 d/a.png seg.cls 1536 3 d/a.seg.cls\npng 2560 3 b.png\n"
    assert (tmp_path / "shard-0.idx").read_text() == wanted


def test_dalis_index_is_read_without_reading_the_shard(index, tmp_path):
    paths = [tmp_path / f"shard-{i}.idx" for i in range(2)]
    for i, path in enumerate(paths):
        write_idx(index, i, path)
    read = read_idx(paths, index.urls)
    assert read.urls == index.urls
    assert [read.key(i) for i in range(3)] == ["d/a", "b", "c"]
    assert [read.fields(i) for i in range(3)] == [index.fields(i) for i in range(3)]
    assert [column.tolist() for column in read.ranges([2, 0])] == [column.tolist() for column in index.ranges([2, 0])]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with 'v1.2 ' and the number of its samples, got ''"),
        ("v1.1 1\npng 512 3\n", "must begin with 'v1.2 ' and the number of its samples, got 'v1.1 1'"),
        ("v1.2 2\npng 512 3 a.png\n", "must begin with 'v1.2 ' and the number of its samples, got 'v1.2 2'"),
        ("v1.2 1\npng 512 3\n", "line 2 must be field, offset, size, name of each file, got 'png 512 3'"),
        ("v1.2 1\npng 512 x a.png\n", "line 2 must be field, offset, size, name of each file"),
        ("v1.2 1\npng 512 -3 a.png\n", "line 2 must be field, offset, size, name of each file"),
        (f"v1.2 1\npng 512 {2**63} a.png\n", "line 2 must be field, offset, size, name of each file"),
        ("v1.2 1\npng 99999 3 a.png\n", "offset 100002: .* has a file that ends there, and the shard ends at 10240"),
    ],
)
def test_a_file_that_is_no_dali_index_of_the_shard_is_refused(text, words, index, tmp_path):
    path = tmp_path / "wrong.idx"
    path.write_text(text)
    with pytest.raises(ShardError, match=words):
        read_idx([path], index.urls[:1])


def test_names_that_dalis_format_cant_hold_are_refused(tmp_path):
    (tmp_path / "blank.tar").write_bytes(tar_of(["a b.png"]))
    with pytest.raises(ShardError, match="key 'a b': DALI's format can't hold blanks and empty names"):
        write_idx(TarIndex.build(tmp_path / "blank.tar"), 0, tmp_path / "blank.idx")
    with pytest.raises(ValueError, match="paths and urls must be as many, and one at least, got 0 and 1"):
        read_idx([], ["a.tar"])


def test_wids_json_tells_shards_and_their_numbers_of_samples(index, tmp_path):
    write_wids(index, tmp_path / "index.json", name="digits")
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": "digits",
        "shardlist": [
            {"url": "shard-0.tar", "nsamples": 2, "filesize": 10240},
            {"url": "shard-1.tar", "nsamples": 1, "filesize": 10240},
        ],
    }
    urls, counts = read_wids(tmp_path / "index.json")
    assert urls == index.urls
    assert counts.tolist() == [2, 1]
    assert len(TarIndex.build(urls)) == counts.sum()


@pytest.mark.parametrize("text", ["{", "[]", '{"shardlist": [{"url": "a.tar"}]}'])
def test_json_of_another_kind_is_no_wids_index(text, tmp_path):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match='must be JSON with a "shardlist" of "url" and "nsamples"'):
        read_wids(tmp_path / "other.json")


def test_a_saved_index_has_the_bytes_that_the_page_describes(index, tmp_path):
    assert index.sizes_of_shards() == [10240, 10240]
    data = (tmp_path / "shard-0.tar.fsi").read_bytes()
    tag = f"mtime_ns={(tmp_path / 'shard-0.tar').stat().st_mtime_ns}".encode()
    body = struct.pack("<6q", 10240, 2, 3, 4, 12, len(tag))
    body += np.array([512, 1536, 2560, 3, 3, 3, 0, 2, 3, 0, 3, 4], "<i8").tobytes()
    body += np.array([0, 1, 0], "<u2").tobytes() + b"d/ab" + b"png\0seg.cls\0" + tag
    assert data == b"\x89FSI\r\n\x1a\n" + struct.pack("<II", 1, zlib.crc32(body)) + body
