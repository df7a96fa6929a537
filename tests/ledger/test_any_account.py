"""Whatever is drawn, by how many ranks, over whatever restarts: an account is right exactly where a Counter says so."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ranks import Ordered, gather_together, loaded, state_of, verify_together

from fastshard import Ledger, LedgerError
from fastshard.ledger.together import agree, agreement


def spoil(draw, ids, num_ids):
    """Drops, repeats or swaps a few of `ids`; or none, as a rule."""
    ids = list(ids)
    for kind in draw(st.lists(st.sampled_from(["drop", "repeat", "swap", "add"]), max_size=1)):
        at = draw(st.integers(0, max(len(ids) - 1, 0)))
        if kind == "add":
            ids.insert(at, draw(st.integers(0, num_ids - 1)))
        elif ids:
            ids[at : at + 1] = {"drop": [], "repeat": [ids[at]] * 2, "swap": [draw(st.integers(0, num_ids - 1))]}[kind]
    return ids


def go_on(draw, ledgers):
    """Ledgers for the rest of the epoch: the same, or those of a new job, of any size if one state is enough."""
    how = draw(st.sampled_from(["same process", "each its own state", "gathered"]))
    if how == "same process":
        return ledgers
    if how == "gathered":
        gather_together(ledgers)
    states = [state_of(ledger, rank, len(ledgers)) for rank, ledger in enumerate(ledgers)]
    if how == "gathered":
        states = [states[draw(st.integers(0, len(states) - 1))]]
        return [loaded(states[0]) for _ in range(draw(st.integers(1, 4)))]
    # Ranks that the former job did not have may load the state of any.
    return [loaded(states[min(rank, len(states) - 1)]) for rank in range(draw(st.integers(len(states), 5)))]


@given(st.data(), st.booleans())
def test_an_account_is_right_exactly_where_a_counter_says_so(data, exact):
    draw = data.draw
    num_ids = draw(st.integers(1, 70))
    order = draw(st.lists(st.integers(0, num_ids - 1), min_size=1, max_size=30) | st.permutations(range(num_ids)))
    ledgers = [Ledger(exact=exact) for _ in range(draw(st.integers(1, 4)))]
    drawn, padded, position = Counter(), 0, 0
    while position < len(order):
        expected = [Ordered(order, num_ids, 3, position, position) for _ in ledgers]
        stop = draw(st.integers(position + 1, len(order)))
        for rank, ledger in enumerate(ledgers):
            ledger.begin(expected[rank])
            if draw(st.booleans()):  # an abandoned pass
                ledger.record([0] * draw(st.integers(0, 3)))
                ledger.begin(expected[rank])
            ids = spoil(draw, order[position:stop][rank :: len(ledgers)], num_ids)
            padding = draw(st.integers(0, 2))
            cut = draw(st.integers(0, len(ids)))
            ledger.record(np.array(ids[:cut], np.int64))
            ledger.record(ids[cut:] + [0] * padding, padding)
            drawn.update(ids)
            padded += padding
            expected[rank].consumed = stop
        position = stop
        if draw(st.booleans()):
            ledgers = go_on(draw, ledgers)
            last = [Ordered(order, num_ids, 3, stop, stop) for _ in ledgers]
            for ledger, each in zip(ledgers, last, strict=True):
                ledger.begin(each)
    results = verify_together(ledgers)
    due = Counter(order)
    if drawn == due:
        assert [(report.draws, report.padded) for report in results] == [(len(order) + padded, padded)] * len(ledgers)
        return
    for error in results:
        assert isinstance(error, LedgerError)
        assert str(error) == str(results[0])
        assert f"{drawn.total():,}" in str(error)
        assert error.missing == (sorted(due - drawn) if exact else [])
        assert error.doubled == (sorted(drawn - due) if exact else [])


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), min_size=1, max_size=6))
def test_sums_tell_on_every_rank_whether_all_digests_are_equal(digests):
    sums = [sum(column) for column in zip(*map(agreement, digests), strict=True)]
    assert agree(sums, len(digests)) == (len(set(digests)) == 1)


def test_a_digest_that_is_the_mean_of_all_does_not_content_its_rank():
    sums = [sum(column) for column in zip(*map(agreement, [1, 2, 3]), strict=True)]
    assert not agree(sums, 3)


def test_sums_of_a_million_ranks_fit_int64():
    assert max(agreement(2**64 - 1)) * 2**20 < 2**63
