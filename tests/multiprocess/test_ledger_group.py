"""Ledgers in real process groups: what is wrong raises on every rank, and one state goes on at another world size."""

import json

import pytest
import torch
import torch.distributed as dist
from launch import run_ranks

from fastshard import DistributedSampler, Ledger, LedgerError, RangeExpected, _core, orders

pytestmark = pytest.mark.multiprocess

N = 23
ORDER = orders.Shuffled(N, 3)


class Pass:
    """Expected of a pass over ORDER's epoch 4 that has come to `consumed`."""

    num_ids = N

    def __init__(self, start, consumed, epoch=4):
        self.start, self.consumed, self.epoch = start, consumed, epoch

    def ids(self, start, part, parts):
        return ORDER.indices(self.epoch, start, self.consumed)[part::parts].copy()

    def fingerprint(self, start, part, parts):
        fingerprint = _core.Fingerprint()
        fingerprint.add(self.ids(start, part, parts), N)
        return fingerprint

    def add_to(self, coverage, start, part, parts):
        coverage.add(self.ids(start, part, parts))

    def place(self):
        return self.consumed

    def is_over(self):
        return self.consumed == N

    def what(self):
        return "samples"


def outcome(call):
    """What a collective call gave on this rank: text, or what the error says."""
    try:
        return str(call())
    except LedgerError as error:
        return [str(error), error.missing, error.doubled]


def epoch_of(sampler, exact=False):
    ledger = Ledger(exact=exact)
    ledger.begin(RangeExpected(N, sampler.epoch))
    ledger.record(sampler.indices(), sampler.num_padding)
    return ledger


def verify_in_many_ways():
    rank, num_replicas = dist.get_rank(), dist.get_world_size()
    sampler = DistributedSampler(range(N), seed=3)
    found = {"right": outcome(epoch_of(sampler).verify), "right, exact": outcome(epoch_of(sampler, exact=True).verify)}

    for exact in (False, True):
        ledger = Ledger(exact=exact)
        ledger.begin(RangeExpected(N))
        ids = sampler.indices().tolist()
        if rank == 1:
            ids[0] = int(ORDER.index(0, 0))  # which rank 0 has
        ledger.record(ids, sampler.num_padding)
        found[f"swapped, exact={exact}"] = outcome(ledger.verify)

    ledger = Ledger()
    ledger.begin(RangeExpected(N, epoch=rank))
    found["epochs"] = outcome(ledger.verify)

    ledger = epoch_of(sampler)
    if rank == num_replicas - 1:
        ledger.load_state_dict(Ledger().state_dict())
    found["one without an account"] = outcome(ledger.verify)
    found["another call"] = outcome(ledger.verify if rank else ledger.gather)

    alone = dist.new_group([0])
    others = dist.new_group(list(range(1, num_replicas)))
    ledger = Ledger()
    ledger.begin(RangeExpected(N))
    ledger.record(range(N)[max(0, rank - 1) :: num_replicas - 1 if rank else 1])
    found["groups"] = outcome(lambda: ledger.verify(others if rank else alone))
    with pytest.raises(ValueError, match="group must be one that this process is in"):
        ledger.verify(alone if rank else others)
    return found


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_ranks_find_together_what_is_right_and_what_is_not(num_replicas, tmp_path):
    ranks = run_ranks(verify_in_many_ways, num_replicas, tmp_path)
    padded = -N % num_replicas
    words = f"every one of the 23 samples exactly once, {padded} padded draw{'s' * (padded != 1)}"
    twice, lost = ORDER.index(0, 0), ORDER.index(0, 1)
    swapped = "epoch 0: 23 draws as there should be, but not of the right samples: some came in others' place"
    epochs = ", ".join(f"{rank} on rank {rank}" for rank in range(num_replicas))
    first = "rank 0" if num_replicas == 2 else "ranks 0, 1"
    others = "rank 1" if num_replicas == 2 else "ranks 1, 2"
    for found in ranks:
        assert found["right"] == found["right, exact"] == words
        assert found["swapped, exact=False"] == [f"{swapped}; Ledger(exact=True) names samples", [], []]
        named = f"; 1 sample missing: {lost}; 1 sample drawn too often: {twice}"
        assert found["swapped, exact=True"] == [swapped + named, [lost], [twice]]
        assert found["epochs"][0] == f"ranks have different accounts; epoch: {epochs}"
        absent = f"ranks have different accounts; epoch: 0 on {first}, missing on rank {num_replicas - 1}; "
        assert found["one without an account"][0].startswith(absent)
        assert f"call: 'gather' on rank 0, 'verify' on {others}" in found["another call"][0]
        assert found["groups"] == "every one of the 23 samples exactly once, 0 padded draws"


def draw_and_save(consumed):
    """Draws positions [0, consumed) with all ranks; returns this rank's state before it gathers and after."""
    ledger = Ledger(exact=True)
    ledger.begin(Pass(0, consumed))
    ledger.record(torch.from_numpy(ORDER.indices(4, dist.get_rank(), consumed, dist.get_world_size())))
    before = json.dumps(ledger.state_dict())
    ledger.gather()
    return before, json.dumps(ledger.state_dict())


def load_and_finish(states, consumed):
    """Goes on with states, of this rank or of the last if there is none of this number, to the end."""
    rank = dist.get_rank()
    ledger = Ledger(exact=True)
    ledger.load_state_dict(json.loads(states[min(rank, len(states) - 1)]))
    ledger.begin(Pass(consumed, N))
    ledger.record(ORDER.indices(4, consumed + rank, N, dist.get_world_size()))
    return outcome(ledger.verify), outcome(ledger.gather)


def go_on_in_three_ways(own, gathered, consumed):
    return [load_and_finish(states, consumed) for states in (gathered[:1], own, own[:1])]


def test_a_job_of_two_goes_on_as_one_of_three_from_one_state_after_gather_or_from_both(tmp_path):
    own, gathered = zip(*run_ranks(draw_and_save, 2, tmp_path, 11), strict=True)
    assert gathered[0] == gathered[1]
    assert json.loads(own[1])["account"]["own"]["rank"] == 1
    right = "every one of the 23 samples exactly once, 0 padded draws"
    for one, both, half in run_ranks(go_on_in_three_ways, 3, tmp_path, own, gathered, 11):
        assert one == both == (right, "None")
        for error in half:
            assert error[0].startswith("the account lacks what rank 1 of 2 drew before the restart")
