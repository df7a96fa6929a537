"""Shards that are not as they should be: refused with shard, offset and key, or left out with one warning each."""

import gzip
import io
import re
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tar_files import index_of, samples_by_range, tar_of

from fastshard.webdataset import ShardError, ShardWarning, TarIndex, sources

GOOD = tar_of(["a.png", "a.cls", "b.png", "b.cls"])
MEMBER = 1024  # bytes that each file of GOOD takes


def with_byte(data, at, byte):
    return data[:at] + bytes([byte]) + data[at + 1 :]


BROKEN = {
    "empty file": (b"", "offset 0: the file is empty"),
    "no samples": (tar_of(["README"]), "no sample in it"),
    "text": (b"hello\n" * 200, "offset 0: the header's checksum is no octal number"),
    "gzip": (gzip.compress(GOOD), "offset 0: the file is compressed (gzip), and byte ranges of it can't be read"),
    "cut in a header": (GOOD[: 2 * MEMBER + 100], "offset 2048, at key 'a': the file ends within a header"),
    "cut in data": (
        GOOD[: 3 * MEMBER + 514],
        "offset 3072, at key 'b': 'b.cls' is cut off: it has 5 bytes from offset 3584 on, and the file ends at 3586",
    ),
    "wrong checksum": (
        with_byte(GOOD, MEMBER + 3, ord("X")),
        "offset 1024, at key 'a': the header's checksum should be",
    ),
    "field twice": (
        tar_of(["a.png", "a.PNG"]),
        "offset 1024, at key 'a': field 'png' comes a second time in the sample",
    ),
    "key twice": (
        tar_of(["a.png", "b.png", "a.cls"]),
        "offset 2560: key 'a' comes a second time, after other samples; first it is at 512",
    ),
    "letters": (tar_of(["a.é", "b.É"]), "fields that differ only in the case of non-ASCII letters: 'é'"),
    "no utf-8": (tar_of(["\udcff.x", "\udcff.X"]), "offset 1024, at key '\\xff': field 'x' comes a second time"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_shard_is_refused_with_shard_offset_and_key(name, tmp_path):
    data, words = BROKEN[name]
    path = tmp_path / "shard-7.tar"
    path.write_bytes(data)
    with pytest.raises(ShardError, match=re.escape(f"{path}: {words}")):
        TarIndex.build(path)
    assert [path.name for path in tmp_path.iterdir()] == ["shard-7.tar"]  # nothing is saved


def test_broken_shards_can_be_skipped_with_one_warning_each(tmp_path):
    shards = {"good-0": GOOD, "broken-1": GOOD[: 3 * MEMBER + 514], "good-2": GOOD, "broken-3": b"", "gone-4": None}
    for name, data in shards.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
    urls = [str(tmp_path / name) for name in shards]
    with pytest.warns(ShardWarning) as warned:
        index = TarIndex.build(urls, on_error="skip", threads=3)
    assert [str(one.message).split(":")[1].strip() for one in warned] == [urls[1], urls[3], urls[4]]
    assert {one.filename for one in warned} == {__file__}
    assert list(index.skipped) == [urls[1], urls[3], urls[4]]
    assert index.skipped[urls[3]] == f"{urls[3]}: offset 0: the file is empty"
    assert "No such file" in index.skipped[urls[4]]
    assert index.urls == [urls[0], urls[2]]
    assert index.samples_per_shard.tolist() == [2, 2]
    assert [index.key(i) for i in range(4)] == ["a", "b", "a", "b"]


def test_if_no_shard_is_left_that_is_an_error_too(tmp_path):
    with (
        pytest.warns(ShardWarning),
        pytest.raises(ShardError, match="all 1 shards had to be left out; the first"),
    ):
        TarIndex.build(tmp_path / "gone.tar", on_error="skip")


def test_the_first_broken_shard_in_order_is_the_one_that_raises(tmp_path):
    for i in range(20):
        (tmp_path / f"{i}.tar").write_bytes(GOOD if i % 7 else GOOD[:700])
    with pytest.raises(ShardError, match=re.escape(str(tmp_path / "0.tar"))):
        TarIndex.build([tmp_path / f"{i}.tar" for i in range(20)], threads=4)


@pytest.mark.parametrize("end", [0, 512], ids=["no zero block", "one zero block"])
def test_an_archive_without_its_end_is_accepted_with_a_warning(end, tmp_path):
    path = tmp_path / "shard.tar"
    path.write_bytes(GOOD[: 4 * MEMBER + end])
    with pytest.warns(ShardWarning, match=r"shard\.tar: no end of archive at offset \d+, after key 'b'"):
        index = TarIndex.build(path)
    assert [index.key(i) for i in range(len(index))] == ["a", "b"]
    assert len(TarIndex.build(path)) == 2  # said once


def test_paths_out_of_the_archive_and_links_are_only_data(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind in (
            ("../../x.png", tarfile.REGTYPE),
            ("/etc/y.png", tarfile.REGTYPE),
            ("l.png", tarfile.SYMTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "shard.tar"
    path.write_bytes(buffer.getvalue())
    index = TarIndex.build(path)
    assert [index.key(i) for i in range(len(index))] == ["../../x", "/etc/y"]
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["in", "shard.tar", "shard.tar.fsi"]


def test_a_shard_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "shard.tar"
    path.write_bytes(GOOD)
    stamp = sources._stamp

    def changing(status):
        path.write_bytes(GOOD + bytes(512))
        return stamp(status)

    monkeypatch.setattr(sources, "_stamp", changing)
    with pytest.raises(ShardError, match="it changed while it was read"):
        TarIndex.build(path)


CHANGES = st.lists(st.tuples(st.integers(0, 4 * MEMBER), st.integers(0, 255)), min_size=1, max_size=8)


@given(changes=CHANGES, cut=st.integers(0, len(GOOD)), repair=st.booleans())
def test_broken_bytes_give_an_error_or_ranges_within_the_file(changes, cut, repair):
    data = bytearray(GOOD[:cut])
    for at, byte in changes:
        if at < len(data):
            data[at] = byte
    for at in range(0, len(data) - 511, MEMBER) if repair else ():
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    data = bytes(data)
    try:
        index = index_of(data)
    except ValueError as error:
        if not re.match(r"offset \d+", str(error)) and "differ only in the case" not in str(error):
            raise
        return
    assert (index.offsets >= 512).all()
    assert (index.offsets + index.sizes <= len(data)).all()
    assert samples_by_range(index_of(data, ahead=0), data) == samples_by_range(index, data)
