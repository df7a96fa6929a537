"""Shards behind a url: range requests to a real web server, and a file system of fsspec's that is no server."""

import os

import pytest
from tar_files import samples_by_range, samples_of_webdataset, tar_of

from fastshard.webdataset import ShardError, ShardWarning, TarIndex, sources


def test_shards_of_a_web_server_are_read_by_ranges_of_some_size(server, tmp_path):
    small = tar_of([f"{i:05d}.{field}" for i in range(500) for field in ("png", "cls")], size=100)
    large = tar_of(["a.bin", "b.bin", "b.cls"], size=2_000_000)
    for i, data in enumerate((small, large)):
        (server.folder / "www" / f"shard-{i}.tar").write_bytes(data)
    server.gets()
    index = TarIndex.build(f"{server.url}/shard-{{0..1}}.tar", cache=tmp_path)
    assert index.samples_per_shard.tolist() == [500, 2]
    for shard, data in enumerate((small, large)):
        assert samples_by_range(index.shard(shard), data) == samples_of_webdataset(data)
    requests = server.gets()
    assert {status for status, _ in requests} == {206}
    assert len(requests) == -(-len(small) // sources.READ_AHEAD) + 4  # not one for each of a thousand files
    assert sum(size for _, size in requests) < len(small) + 4 * sources.READ_AHEAD + 1
    assert len(TarIndex.load(index.urls, cache=tmp_path)) == 502
    assert server.gets() == []


def test_a_remote_shard_that_changed_is_indexed_anew(server, tmp_path):
    path, url = server.folder / "www" / "changing.tar", f"{server.url}/changing.tar"
    path.write_bytes(tar_of(["a.png"]))
    TarIndex.build(url, cache=tmp_path)
    path.write_bytes(tar_of(["b.png", "c.png"]))
    os.utime(path, (0, 0))  # nginx's ETag has the second in it
    with pytest.raises(ShardError, match="it has changed since it was indexed"):
        TarIndex.load(url, cache=tmp_path)
    index = TarIndex.build(url, cache=tmp_path)
    assert [index.key(i) for i in range(len(index))] == ["b", "c"]


def test_a_server_that_gives_no_ranges_or_no_shard_is_named(server, tmp_path):
    data = tar_of([f"{i}.bin" for i in range(5)], size=100_000)
    (server.folder / "www" / "shard.tar").write_bytes(data)
    with pytest.raises(ShardError, match=rf"/whole/shard\.tar: offset 0: 262144 bytes asked for and {len(data)} got; "):
        TarIndex.build(f"{server.url}/whole/shard.tar", cache=tmp_path)
    with pytest.raises(ShardError, match=r"/none\.tar: "):
        TarIndex.build(f"{server.url}/none.tar", cache=tmp_path)
    with pytest.warns(ShardWarning, match=r"left out: .*/none\.tar: "):
        index = TarIndex.build(f"{server.url}/{{none,shard}}.tar", cache=tmp_path, on_error="skip")
    assert len(index) == 5


def test_a_broken_remote_shard_is_refused_with_offset_and_key(server, tmp_path):
    (server.folder / "www" / "cut.tar").write_bytes(tar_of(["a.png", "b.png"], size=1_000_000)[:1_500_000])
    with pytest.raises(ShardError, match=r"/cut\.tar: offset 1000960, at key 'a': 'b\.png' is cut off: it has"):
        TarIndex.build(f"{server.url}/cut.tar", cache=tmp_path)


def test_any_file_system_of_fsspec_will_do(tmp_path):
    import fsspec

    data = tar_of(["a.png", "a.cls", "b.png"])
    fsspec.filesystem("memory").pipe_file("/fastshard-test/shard.tar", data)
    index = TarIndex.build("memory://fastshard-test/shard.tar", cache=tmp_path)
    assert samples_by_range(index.shard(0), data) == samples_of_webdataset(data)
