"""The questions themselves: what they compare really runs, and says the same in both of its files."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from bench import length_groups, memory, peers, report, timing
from bench.__main__ import main
from bench.questions import QUESTIONS

ROOT = Path(__file__).parents[2]


def test_a_question_answered_by_the_command_gives_both_files_and_they_agree(tmp_path):
    command = [sys.executable, "-m", "bench", "iterate", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iterate.json", "iterate.md"]
    read = json.loads((tmp_path / "iterate.json").read_text(encoding="utf-8"))
    markdown = (tmp_path / "iterate.md").read_text(encoding="utf-8")
    assert done.stdout.strip() == markdown.strip()
    lines = [
        line for line in markdown.splitlines() if line.startswith(("| one at a time", "| batches of", "| lists of"))
    ]
    assert len(lines) == len(read["rows"]) >= 12
    for line, row in zip(lines, read["rows"], strict=True):
        case, peer, median, _, runs, ratio = line.strip("| ").split(" | ")
        assert (case, peer, runs) == (row["case"], row["peer"], str(len(row["values"])))
        assert median == report.quantity(row["median"], read["unit"])
        assert ratio.split()[0] == report.times(row["ratio"])
        assert row["ratio"] > 0
        assert row["low"] <= row["median"] <= row["high"]
    for name in ("CPU", "numpy", "torch", "fastshard", "instruction set"):
        assert f"| {name} | {read['machine'][name]} |" in markdown


@pytest.mark.parametrize("arguments", [["epoch_strat"], ["epoch_strat", "--quick"], [], ["--quick"]])
def test_an_unknown_or_missing_name_exits_2_with_the_names_that_there_are(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert all(name in printed for name in [*arguments[:1], "epoch_start", "iterate", "memory", "all"])


def test_the_list_has_every_question(capsys):
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(QUESTIONS)
    assert {"epoch_start", "iterate", "length_groups", "memory", "throughput", "torch_order"} <= set(listed)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_compares_each_case_with_a_baseline_and_no_peer_twice(name):
    for quick in (True, False):
        for group in QUESTIONS[name].plan(quick).groups:
            labels = [cell.peer for cell in group.cells]
            assert group.baseline in labels
            assert len(labels) == len(set(labels)) > 1


def test_peers_hand_out_a_share_of_the_same_size_and_torchs_order_is_torchs():
    ids = {}
    for name, peer in peers.installed().items():
        sampler, rest = peers.started(peer, 80_000)
        assert len(list(rest)) == 9_999
        sampler.set_epoch(peers.EPOCH)
        ids[name] = list(islice(sampler, 100))
    torchs = {"torch", "torchdata", "fastshard-torch"} & set(ids)
    assert {tuple(ids[name]) for name in torchs} == {tuple(ids["torch"])}
    assert len({tuple(drawn) for drawn in ids.values()}) == len(ids) - len(torchs) + 1 >= 3


def test_groupings_hand_out_an_epoch_and_their_tokens_are_counted_by_hand():
    assert length_groups.tokens(np.array([5, 1, 4, 2, 9]), [[[0, 1], [4]], [[2], [3, 1]]]) == (22, 27, 38)
    lengths = length_groups.make_lengths(500)
    for grouping in length_groups._installed():
        ranks = [list(grouping.build(lengths, 4, 5, rank, 1)) for rank in range(5)]
        assert sorted(sample for batches in ranks for batch in batches for sample in batch) == list(range(500))
        real, padded, waited = length_groups.tokens(lengths, ranks)
        assert real == lengths.sum() < padded < waited


def test_a_peer_that_is_not_installed_is_named_and_the_others_versions_are(monkeypatch):
    assert peers.Peer("x", list, package="no-such-package").installed is False
    assert peers.Peer("x", list, package="numpy").installed is True
    monkeypatch.setattr(peers, "version", {"torchdata": "1.2", "grain": "3.4"}.get)
    assert peers.notes() == [
        "Peers: torchdata 1.2, grain 3.4.",
        peers.GRAIN_REMARK,
        "streaming py1e[rank::P] is not installed, and not measured.",
        "streaming py1br[rank::P] is not installed, and not measured.",
    ]
    assert {"py1e", "py1br"}.isdisjoint(peers.installed())


def test_memory_is_measured_in_bytes_in_a_process_of_its_own():
    # Linux knows a peak that is past to 0.3 MB, and that of a permutation is when it is moved to shared memory.
    assert 4 * 2_000_000 - 500_000 <= memory.growth("fastshard-torch", 2_000_000) < 4 * 2_000_000 + 1_000_000


def test_what_is_prepared_is_prepared_once_and_handed_to_every_run():
    prepared, seen = [], []
    measure = timing.items_per_second(10, seen.append, lambda: prepared.append(1) or "ready")
    assert measure() > 0
    assert measure() > 0
    assert (prepared, seen) == ([1], ["ready", "ready"])


def test_a_short_call_is_repeated_until_it_can_be_timed():
    calls = []
    measure = timing.seconds_per_call(lambda: calls.append(1))
    measure()
    assert len(calls) == 1
    measure()
    assert len(calls) > 100


@pytest.mark.parametrize(("samples", "text"), [(100_000, "1e5"), (50_000_000, "5e7"), (12_500, "1.25e4"), (7, "7e0")])
def test_a_size_is_written_as_people_say_it(samples, text):
    assert peers.power(samples) == text
