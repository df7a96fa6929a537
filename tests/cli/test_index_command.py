"""The command line: what is printed where, exit statuses, and one line for an error."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from fastshard import _version
from fastshard.cli.main import COMMANDS, main
from fastshard.webdataset import TarIndex, read_idx, read_wids

FASTSHARD = [sys.executable, "-m", "fastshard"]


@pytest.fixture
def folder(tmp_path):
    """Three shards of 2, 3 and 4 samples, of which every second one has no label."""
    for shard in range(3):
        with tarfile.open(tmp_path / f"s-{shard}.tar", "w") as tar:
            for sample in range(2 + shard):
                for field in ("png", "cls")[: 1 + sample % 2]:
                    member = tarfile.TarInfo(f"{shard}{sample}.{field}")
                    member.size = 3
                    tar.addfile(member, io.BytesIO(b"abc"))
    return tmp_path


def test_shards_are_indexed_and_told_in_a_table(folder, capsys):
    assert main(["index", f"{folder}/s-{{0..2}}.tar", "--no-progress"]) == 0
    printed = capsys.readouterr()
    rows = dict(line.split(maxsplit=1) for line in printed.out.replace("per shard", "per-shard").splitlines()[:5])
    assert rows["shards"] == "3"
    assert rows["samples"] == "9"
    assert rows["per-shard"] == "2 to 4"
    assert rows["fields"] == "png, cls (in 4 samples)"
    assert f"saved in   {folder}" in printed.out
    assert printed.err == ""
    assert len(TarIndex.load([str(path) for path in sorted(folder.glob("*.tar"))])) == 9


def test_json_is_one_object_with_every_shard(folder, capsys):
    cache = folder / "cache"
    assert (
        main(["index", *map(str, sorted(folder.glob("*.tar"))), "--json", "--cache", str(cache), "--threads", "2"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["shards"], told["samples"], told["fields"]) == (3, 9, {"png": 9, "cls": 4})
    assert [(each["samples"], each["bytes"]) for each in told["each"]] == [
        (2 + shard, (folder / f"s-{shard}.tar").stat().st_size) for shard in range(3)
    ]
    assert all(each["index"].startswith(str(cache)) for each in told["each"])
    assert not list(folder.glob("*.fsi"))


def test_check_tells_what_is_missing_and_what_is_stale(folder, capsys):
    urls = f"{folder}/s-{{0..2}}.tar"
    assert main(["index", urls, "--check"]) == 1
    assert "3 of 3 shards have no fresh index" in capsys.readouterr().out
    assert not list(folder.glob("*.fsi"))
    assert main(["index", urls, "--no-progress"]) == 0
    capsys.readouterr()
    assert main(["index", urls, "--check"]) == 0
    assert capsys.readouterr().out == "all 3 shards have a fresh index\n"
    (folder / "s-1.tar").write_bytes((folder / "s-2.tar").read_bytes())
    assert main(["index", urls, "--check", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["shards"], told["fresh"], list(told["problems"])) == (3, 2, [f"{folder}/s-1.tar"])


@pytest.mark.parametrize(("to", "output"), [("dali", "idx"), ("wids", "all.json")])
def test_the_indexes_of_others_are_written(folder, capsys, to, output):
    urls = sorted(map(str, folder.glob("*.tar")))
    arguments = ["--to", to, "--output", str(folder / output), "--json", "--no-progress"]
    assert main(["index", *urls, *arguments]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    if to == "dali":
        assert written == [f"{folder}/idx/s-{shard}.idx" for shard in range(3)]
        assert read_idx(written, urls).samples_per_shard.tolist() == [2, 3, 4]
    else:
        assert written == [f"{folder}/all.json"]
        assert read_wids(written[0])[1].tolist() == [2, 3, 4]


def test_a_broken_shard_ends_the_command_or_is_left_out(folder, capsys):
    (folder / "s-1.tar").write_bytes((folder / "s-1.tar").read_bytes()[:700])
    urls = f"{folder}/s-{{0..2}}.tar"
    assert main(["index", urls, "--no-progress"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("fastshard index: error: ")
    assert "s-1.tar" in printed.err
    assert main(["index", urls, "--no-progress", "--on-error", "skip"]) == 0
    printed = capsys.readouterr()
    assert "left out   1" in printed.out
    assert printed.err.startswith("fastshard index: warning: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["indx"], "invalid choice: 'indx'"),
        (["index"], "the following arguments are required: URL"),
        (["index", "a.tar", "--threads", "0"], "threads must be in [1, 1025), got threads=0"),
        (["index", "a.tar", "--threads", "x"], "invalid int value: 'x'"),
        (["index", "a.tar", "--to", "dali"], "--to and --output go together"),
        (["index", "a.tar", "--check", "--to", "wids", "--output", "x"], "--check builds nothing"),
        (["index", "x/a.tar", "y/a.tar", "--to", "dali", "--output", "x"], "shards of the same name would have one"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_missing_shard_is_a_problem_of_the_data(tmp_path, capsys):
    assert main(["index", str(tmp_path / "no.tar")]) == 1
    assert "no.tar" in capsys.readouterr().err


def test_help_names_every_command_and_loads_none(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed and command.help.split(",")[0] in printed for name, command in COMMANDS.items())
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastshard {_version.__version__}\n"
    code = (
        "import sys; from fastshard.cli.main import main; main(['--help']); print('fastshard.cli.index' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("False\n")


def test_nobody_reads_on(folder):
    """As `fastshard index ... | head -0`: silent, with the status that a shell gives SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [*FASTSHARD, "index", f"{folder}/s-{{0..2}}.tar", "--no-progress"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_is_no_traceback(tmp_path):
    """While it waits for a server that says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.tar"
        process = subprocess.Popen([*FASTSHARD, "index", url], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        try:
            server.settimeout(120)
            connection, _ = server.accept()
            with connection:
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
