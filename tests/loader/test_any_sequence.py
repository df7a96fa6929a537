"""Whatever a loop does with its loaders, one after another: they give what a model in a few lines of Python gives.

The model knows the place that was loaded, the epoch that was asked for and the pass that runs. All ranks of a job are
here in one process, in lockstep, and one ledger for each is with them.
"""

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastshard import DataLoader, DistributedBatchSampler, DistributedSampler, EpochChangedError, Ledger, orders

sys.path.append(str(Path(__file__).parents[1] / "ledger"))
from ranks import gather_together, verify_together

LENGTH = 13
BATCH_SIZES = {1: 4, 2: 2, 3: 2, 4: 1}  # by the number of ranks: the global batch is 4, and once 6
WORKERS = st.just(0)  # a worker that is let go of in mid-pass may take seconds to end: [0, 1] is for fuzzing
EPOCHS = st.integers(0, 1)


@dataclass
class ModelPass:
    """A pass of all ranks: where it began, and how many batches were taken of it."""

    epoch: int
    began: int
    loads: int
    turn: int
    taken: int = 0
    ended: bool = False


class Job:
    """The loaders of all ranks, side by side."""

    def __init__(self, kind, num_replicas, num_workers, uneven, drop_last, policy, has_ledger):
        size = BATCH_SIZES[num_replicas]
        self.ledgers = [Ledger(exact=True) if has_ledger else None for _ in range(num_replicas)]
        self.loaders = []
        for rank, ledger in enumerate(self.ledgers):
            options = {"num_workers": num_workers, "ledger": ledger}
            if kind == "batches":
                batches = DistributedBatchSampler(
                    range(LENGTH),
                    size,
                    num_replicas,
                    rank,
                    drop_last=drop_last,
                    uneven=uneven,
                    on_repeated_epoch=policy,
                )
                loader = DataLoader(range(LENGTH), batch_sampler=batches, **options)
            else:
                sampler = DistributedSampler(range(LENGTH), num_replicas, rank, uneven=uneven, on_repeated_epoch=policy)
                loader = DataLoader(range(LENGTH), size, sampler=sampler, drop_last=drop_last, **options)
            self.loaders.append(loader)


QUIET = [
    pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning"),
    pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning"),
]


class AnySequence(RuleBasedStateMachine):
    """A training loop that does anything, and what should come of it."""

    job = latest = None
    has_ledger = False

    @initialize(
        kind=st.sampled_from(["batches", "ids"]),
        uneven=st.sampled_from(["pad", "drop", "keep"]),
        drop_last=st.booleans(),
        advances=st.booleans(),
        has_ledger=st.booleans(),
        num_replicas=st.integers(1, 4),
        num_workers=WORKERS,
    )
    def start(self, kind, uneven, drop_last, advances, has_ledger, num_replicas, num_workers):
        self.has_ledger = has_ledger
        self.kind, self.uneven, self.drop_last, self.advances = kind, uneven, drop_last, advances
        self.states = []
        self.new_job(num_replicas, num_workers)

    @rule(num_replicas=st.integers(1, 4), num_workers=WORKERS)
    def new_job(self, num_replicas, num_workers):
        self.iterators = None
        self.num_replicas, self.num_workers = num_replicas, num_workers
        policy = "advance" if self.advances else "ignore"
        self.job = Job(self.kind, num_replicas, num_workers, self.uneven, self.drop_last, policy, self.has_ledger)
        self.epoch, self.loaded, self.asked, self.unused, self.loads, self.turn = 0, (0, 0), False, False, 0, 0
        self.latest = self.running = None  # of passes that began
        self.repeated = 0  # passes over this epoch that began and are over

    # What the model says.

    def shares(self, epoch, began):
        """Each rank's batches in a pass from there."""
        order = orders.Shuffled(LENGTH, 0).indices(epoch, 0, LENGTH).tolist()
        ranks, size = self.num_replicas, BATCH_SIZES[self.num_replicas]
        left = LENGTH - began
        total = {"pad": left + -left % ranks, "drop": left - left % ranks, "keep": left}[self.uneven]
        draws = [order[p % LENGTH] for p in range(began, began + total)]
        shares = []
        for rank in range(ranks):
            mine = draws[rank::ranks]
            batches = [mine[at : at + size] for at in range(0, len(mine), size)]
            if self.drop_last:
                batches = [batch for batch in batches if len(batch) == size]
                if self.kind == "batches" and self.uneven == "keep":
                    batches = batches[: total // ranks // size]
            shares.append(batches)
        return shares

    def place(self):
        """Epoch and consumed, as a state has to tell them."""
        latest = self.latest
        if latest is None or latest.epoch != self.epoch or latest.loads != self.loads:
            return self.epoch, self.loaded[1] if self.loaded[0] == self.epoch else 0
        if self.is_through(latest):
            return self.epoch, LENGTH
        size = BATCH_SIZES[self.num_replicas]
        return self.epoch, min(latest.began + latest.taken * size * self.num_replicas, LENGTH)

    def is_through(self, a_pass):
        return a_pass.ended or 0 < a_pass.taken == len(self.shares(a_pass.epoch, a_pass.began)[0])

    def begin(self):
        """The pass that begins now."""
        latest = self.latest
        if latest is not None and (latest.epoch != self.epoch or latest.loads != self.loads):
            latest = None
        if self.repeated and self.advances and not (latest and latest.began > 0 and not self.is_through(latest)):
            self.epoch += 1
            self.repeated, latest = 0, None
        began = 0
        if self.epoch == self.loaded[0]:
            if self.loaded[1] >= LENGTH:
                if self.asked:
                    began = LENGTH
                else:
                    self.epoch += 1
            elif not (latest and self.is_through(latest)):
                began = self.loaded[1]
            if self.epoch == self.loaded[0] and began == 0:
                self.loaded = self.epoch, 0  # who begins a whole pass has done with the place
        self.unused = False
        self.latest = self.running = ModelPass(self.epoch, began, self.loads, self.turn)

    def leave(self):
        """The pass that runs is over, finished or abandoned."""
        if self.running and self.running.epoch == self.epoch and self.running.turn == self.turn:
            self.repeated += 1
        self.running = None

    # What a loop does.

    @rule()
    def iterate(self):
        self.iterators = None
        self.leave()
        self.iterators = [iter(loader) for loader in self.job.loaders]
        self.is_due = True
        if self.num_workers:
            self.begin()
            self.is_due = False

    def take_one(self):
        """A batch on every rank that has one; returns whether rank 0 had one."""
        if self.is_due:
            self.begin()
            self.is_due = False
        a_pass = self.running
        shares = self.shares(a_pass.epoch, a_pass.began)
        got = [next(iterator, None) for iterator in self.iterators]
        wanted = [share[a_pass.taken] if a_pass.taken < len(share) else None for share in shares]
        assert [None if batch is None else batch.tolist() for batch in got] == wanted
        if wanted[0] is None:
            a_pass.ended = True
            self.iterators = None
            self.leave()
            return False
        a_pass.taken += 1
        return True

    def is_stale(self):
        return not self.is_due and (self.running.loads != self.loads or self.running.epoch != self.epoch)

    @rule(batches=st.integers(1, 3))
    def look(self, batches):
        self.iterate()
        self.take(batches)

    @rule()
    def go_through(self):
        self.iterate()
        self.finish()

    @rule(num_replicas=st.integers(1, 4), num_workers=WORKERS)
    def stop_and_go_on(self, num_replicas, num_workers):
        self.save()
        self.new_job(num_replicas, num_workers)
        self.load_state(self.states[-1])

    @precondition(lambda self: self.iterators is not None)
    @rule(batches=st.integers(1, 3))
    def take(self, batches):
        if self.is_stale():
            shares = self.shares(self.running.epoch, self.running.began)
            for iterator, share in zip(self.iterators, shares, strict=True):
                if self.running.taken < len(share):
                    for _ in range(2):
                        with pytest.raises(EpochChangedError):
                            next(iterator)
            self.iterators = None
            self.leave()
            return
        for _ in range(batches):
            if not self.take_one():
                break

    @precondition(lambda self: self.iterators is not None and not self.is_stale())
    @rule()
    def finish(self):
        while self.take_one():
            pass

    @rule(epoch=EPOCHS)
    def set_epoch(self, epoch):
        for loader in self.job.loaders:
            loader.set_epoch(epoch)
        self.epoch, self.asked, self.unused, self.repeated = epoch, True, True, 0
        self.turn += 1

    @rule()
    def save(self):
        places = set()
        if self.has_ledger:
            gather_together(self.job.ledgers)
        for rank, loader in enumerate(self.job.loaders):
            state = json.loads(json.dumps(loader.state_dict()))
            places.add((state["epoch"], state["consumed"]))
            if rank == 0:
                self.states.append(state)
        assert places == {self.place()}

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def load(self, data):
        self.load_state(self.states[data.draw(st.integers(max(0, len(self.states) - 3), len(self.states) - 1))])

    def load_state(self, state):
        for loader in self.job.loaders:
            loader.load_state_dict(state)
        # A set_epoch just before, for a pass that has not begun yet, was meant for the pass after the load.
        self.asked = self.unused = self.unused and self.epoch == state["epoch"]
        self.epoch, _ = self.loaded = state["epoch"], state["consumed"]
        self.loads += 1
        self.turn += 1
        self.repeated = 0

    @precondition(lambda self: self.iterators is None and not self.has_ledger)
    @rule()
    def copy(self):
        self.job = pickle.loads(pickle.dumps(self.job))

    @invariant()
    def tell_the_place(self):
        if self.job is not None:
            states = [loader.state_dict() for loader in self.job.loaders]
            assert {(state["epoch"], state["consumed"]) for state in states} == {self.place()}

    @invariant()
    def verify(self):
        if not self.has_ledger or self.latest is None or self.latest.loads != self.loads:
            return
        reports = verify_together(self.job.ledgers)
        for report in reports:
            assert not isinstance(report, Exception), report
        report = reports[0]
        a_pass = self.latest
        assert report.epoch == a_pass.epoch
        reached = self.is_through(a_pass)
        assert report.is_over == reached
        if reached and report.start == 0:
            assert report.draws - report.padded + report.dropped == LENGTH


AnySequence.TestCase.settings = settings(max_examples=400, stateful_step_count=25, phases=[Phase.generate])
TestAnySequence = AnySequence.TestCase
TestAnySequence.pytestmark = QUIET
