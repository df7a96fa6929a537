"""An index says what webdataset's own reader yields: keys, fields and bytes, of any tar that both can read."""

import io
import shutil
import subprocess
import tarfile
from collections import Counter

import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st
from tar_files import index_of, samples_by_range, samples_of_webdataset, tar_of

from fastshard.webdataset import TarIndex

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
LINKS = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)

PIECES = st.sampled_from(["a", "b", "B", ".", ".", "/", "É", "\udcff", "\n", "__", "..", "x" * 101, "0.5.png"])
NAMES = st.lists(PIECES, min_size=1, max_size=6).map("".join)
MEMBERS = st.lists(
    st.tuples(NAMES, st.sampled_from((*TYPES, *TYPES, *LINKS)), st.integers(0, 1500)), min_size=1, max_size=12
)


@pytest.mark.parametrize("tar_format", FORMATS)
@given(members=MEMBERS)
def test_any_members_that_tarfile_can_write_are_the_same_samples(tar_format, members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=FORMATS[tar_format], errors="surrogateescape") as tar:
        for i, (name, kind, size) in enumerate(members):
            member = tarfile.TarInfo(name)
            # The oldest format's files with a slash at the end are directories, which have no data.
            size = 0 if kind not in TYPES or (kind == tarfile.AREGTYPE and "/" in name) else size
            member.type, member.size, member.linkname = kind, size, "../" + "t" * (i % 2 * 120)
            try:
                tar.addfile(member, io.BytesIO(bytes([i]) * size))
            except ValueError:  # ustar has no place for a long name
                continue
    data = buffer.getvalue()
    try:
        wanted = samples_of_webdataset(data)
    except ValueError:
        with pytest.raises(ValueError, match="comes a second time in the sample"):
            index_of(data)
        return
    if max(Counter(sample["__key__"] for sample in wanted).values(), default=1) > 1:
        with pytest.raises(ValueError, match="comes a second time, after other samples"):
            index_of(data)
        return
    for ahead in (0, 2000, 1 << 30):
        assert samples_by_range(index_of(data, ahead), data) == wanted


def test_shards_of_webdatasets_writer_are_the_same_samples(tmp_path):
    with webdataset.ShardWriter(f"{tmp_path}/shard-%03d.tar", maxcount=40, verbose=0) as writer:
        for i in range(100):
            writer.write({"__key__": f"sample{i:04d}", "cls": i % 10, "json": {"i": i}, "left.png.bin": bytes(i * 50)})
    index = TarIndex.build(f"{tmp_path}/shard-{{000..002}}.tar")
    assert index.samples_per_shard.tolist() == [40, 40, 20]
    for shard, url in enumerate(index.urls):
        data = (tmp_path / url).read_bytes()
        assert samples_by_range(index.shard(shard), data) == samples_of_webdataset(data)


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar command")
@pytest.mark.parametrize("tar_format", ["v7", "ustar", "oldgnu", "gnu", "posix"])
def test_shards_of_the_tar_command_are_the_same_samples(tar_format, tmp_path):
    names = ["a.jpg", "a.cls", f"dir/{'b' * (80 if tar_format == 'v7' else 95)}.jpg"]
    names += [] if tar_format in ("v7", "ustar") else ["c" * 200 + ".x"]
    for i, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes([i]) * 700)
    (tmp_path / "link.jpg").symlink_to("a.jpg")
    (tmp_path / "hard.jpg").hardlink_to(tmp_path / "a.jpg")
    command = ["tar", f"--format={tar_format}", "-cf", "shard.tar", *names, "link.jpg", "hard.jpg"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    data = (tmp_path / "shard.tar").read_bytes()
    wanted = samples_of_webdataset(data)
    assert [sample["__key__"] for sample in wanted] == list(dict.fromkeys(name.split(".")[0] for name in names))
    assert samples_by_range(TarIndex.build(tmp_path / "shard.tar").shard(0), data) == wanted


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar command")
@pytest.mark.parametrize("tar_format", ["oldgnu", "posix"])
def test_a_sparse_file_is_refused_in_each_format_that_has_them(tar_format, tmp_path):
    with (tmp_path / "s.bin").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    command = ["tar", "--sparse", f"--format={tar_format}", "-cf", "shard.tar", "s.bin"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    with pytest.raises(ValueError, match=r"shard\.tar: offset \d+: .*sparse file, which can't be read by byte range"):
        TarIndex.build(tmp_path / "shard.tar")


def test_a_file_of_more_than_8_gibibytes_is_found_by_its_long_size(tmp_path):
    size = 9 << 30
    member = tarfile.TarInfo("big.bin")
    member.size = size
    for name, tar_format in FORMATS.items():
        if name == "ustar":
            continue
        header = member.tobuf(tar_format)
        path = tmp_path / f"{name}.tar"
        with path.open("wb") as file:  # a hole where the data would be
            file.write(header)
            file.seek(size, 1)
            file.write(tar_of(["after.cls"]))
        fields = TarIndex.build(path).shard(0)
        assert fields.fields(0) == {"bin": (len(header), size)}
        assert fields.fields(1) == {"cls": (len(header) + size + 512, 5)}
