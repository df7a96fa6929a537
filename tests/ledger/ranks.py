"""Ledgers of several ranks side by side in one process: their steps in turn, with sums and lists made here."""

import json

from fastshard import Ledger, LedgerError, _core
from fastshard.ledger.together import Sum


def together(all_steps):
    """Runs one generator of steps per rank in lockstep; returns for each rank what it returned or raised."""
    results, answers = [None] * len(all_steps), [None] * len(all_steps)
    while True:
        asked = []
        for rank, steps in enumerate(all_steps):
            try:
                asked.append(steps.send(answers[rank]))
            except StopIteration as end:
                results[rank] = end.value
            except LedgerError as error:
                results[rank] = error
        if not asked:
            return results
        assert len(asked) == len(all_steps), "some ranks wait for others that are done"
        if isinstance(asked[0], Sum):
            answers = [sum(each.numbers for each in asked)] * len(asked)
        else:
            answers = [[each.value for each in asked]] * len(asked)


def verify_together(ledgers):
    return together([ledger._verify(rank, len(ledgers)) for rank, ledger in enumerate(ledgers)])


def gather_together(ledgers):
    results = together([ledger._gather(rank, len(ledgers)) for rank, ledger in enumerate(ledgers)])
    assert results == [None] * len(ledgers)


def state_of(ledger, rank, num_replicas):
    """What state_dict gives in a group of that size, through JSON."""
    state = {"version": 1, "exact": ledger.exact, "account": None}
    if ledger._account is not None:
        state["account"] = ledger._account.to_state(ledger._place(), rank, num_replicas)
    return json.loads(json.dumps(state))


def loaded(state):
    ledger = Ledger(exact=state["exact"])
    ledger.load_state_dict(state)
    return ledger


class Ordered:
    """Expected of an epoch with a known order: what a pass from `start` on should have drawn when `consumed` are."""

    def __init__(self, order, num_ids, epoch=0, start=0, consumed=None, what="samples"):
        self.order, self.num_ids, self.epoch, self.start = order, num_ids, epoch, start
        self.consumed = len(order) if consumed is None else consumed
        self._what = what

    def fingerprint(self, start, part, parts):
        fingerprint = _core.Fingerprint()
        fingerprint.add(self.order[start : self.consumed][part::parts], self.num_ids)
        return fingerprint

    def add_to(self, coverage, start, part, parts):
        coverage.add(self.order[start : self.consumed][part::parts])

    def place(self):
        return self.consumed

    def is_over(self):
        return self.consumed == len(self.order)

    def what(self):
        return self._what
