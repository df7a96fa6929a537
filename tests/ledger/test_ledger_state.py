"""States of a Ledger: what they hold, who they count for, and what is said where they do not belong together."""

import base64
import copy
import json
import pickle

import pytest
from ranks import Ordered, gather_together, loaded, state_of, verify_together

from fastshard import Ledger, LedgerError, RangeExpected, StateMismatchError


def drawn(num_replicas, consumed, n=24, epoch=5, exact=False):
    """Ledgers of so many ranks that have drawn positions [0, consumed)."""
    ledgers = [Ledger(exact=exact) for _ in range(num_replicas)]
    for rank, ledger in enumerate(ledgers):
        ledger.begin(Ordered(list(range(n)), n, epoch, 0, consumed))
        ledger.record(list(range(consumed))[rank::num_replicas])
    return ledgers


def finish(ledgers, start, n=24, epoch=5):
    """All of them draw what is left; returns what verify gives on each."""
    for rank, ledger in enumerate(ledgers):
        ledger.begin(Ordered(list(range(n)), n, epoch, start))
        ledger.record(list(range(start, n))[rank :: len(ledgers)])
    return verify_together(ledgers)


def states(ledgers):
    return [state_of(ledger, rank, len(ledgers)) for rank, ledger in enumerate(ledgers)]


RIGHT = "every one of the 24 samples exactly once, 0 padded draws"


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("worlds", [(3, 3), (3, 2), (2, 5), (4, 1)])
def test_after_gather_one_state_is_enough_at_any_world_size(exact, worlds):
    ledgers = drawn(worlds[0], 10, exact=exact)
    gather_together(ledgers)
    assert len({json.dumps(ledger.state_dict()) for ledger in ledgers}) == 1
    assert ledgers[0].state_dict()["account"]["own"] is None
    after = [loaded(states(ledgers)[0]) for _ in range(worlds[1])]
    assert list(map(str, finish(after, 10))) == [RIGHT] * worlds[1]


@pytest.mark.parametrize("worlds", [(3, 3), (3, 5)])
def test_without_gather_the_states_of_all_ranks_together_are_enough(worlds):
    saved = states(drawn(worlds[0], 10))
    after = [loaded(saved[min(rank, len(saved) - 1)]) for rank in range(worlds[1])]
    assert list(map(str, finish(after, 10))) == [RIGHT] * worlds[1]


@pytest.mark.parametrize(
    ("num_replicas", "world", "missing"),
    [(4, 4, "ranks 1, 2, 3 of 4"), (4, 1, "ranks 1, 2, 3 of 4"), (2, 3, "rank 1 of 2")],
)
def test_one_rank_s_state_without_gather_is_refused_and_missing_ranks_are_named(num_replicas, world, missing):
    state = states(drawn(num_replicas, 10))[0]
    after = [loaded(state) for _ in range(world)]
    for error in finish(after, 10):
        assert isinstance(error, LedgerError)
        assert str(error).startswith(f"the account lacks what {missing} drew before the restart")
        assert "call gather() on all ranks before rank 0 saves" in str(error)


def test_own_states_in_a_smaller_world_name_who_is_gone():
    after = [loaded(state) for state in states(drawn(4, 10))[:3]]
    assert [str(error)[:41] for error in finish(after, 10)] == ["the account lacks what rank 3 of 4 drew b"] * 3


def test_many_restarts_in_one_epoch_add_up():
    order = list(range(24))
    ledgers, position = [Ledger(exact=True), Ledger(exact=True)], 0
    for stop in (5, 6, 6, 15, 24):
        for rank, ledger in enumerate(ledgers):
            ledger.begin(Ordered(order, 24, 5, position, stop))
            ledger.record(order[position:stop][rank::2])
        ledgers, position = [loaded(state) for state in states(ledgers)], stop
    assert list(map(str, finish(ledgers, 24))) == [RIGHT] * 2


@pytest.mark.parametrize("exact", [False, True])
def test_state_dict_changes_nothing_and_a_state_that_is_loaded_is_the_state_that_is_saved(exact):
    ledger = drawn(2, 10, exact=exact)[1]
    saved = [state_of(ledger, 1, 2) for _ in range(2)]
    assert saved[0] == saved[1]
    # Also on a rank of another number, in a world of another size, before anything is drawn.
    assert state_of(loaded(saved[0]), 0, 7) == saved[0]
    again = loaded(saved[0])
    again.begin(Ordered(list(range(24)), 24, 5, 10, 10))
    assert state_of(again, 0, 7) == saved[0]


def test_a_state_has_a_constant_size():
    def size(n):
        return len(json.dumps(states(drawn(1, n - 1, n))[0]))

    assert size(100_000) - size(10) < 30  # digits of counts


def test_a_state_is_frozen():
    assert states(drawn(2, 10))[1] == {
        "version": 1,
        "exact": False,
        "account": {
            "epoch": 5,
            "start": 0,
            "place": 10,
            "num_ids": 24,
            "base": {"count": 0, "padded": 0, "dropped": 0, "fingerprint": "0" * 32},
            "own": {
                "rank": 1,
                "num_replicas": 2,
                "count": 5,
                "padded": 0,
                "dropped": 0,
                "fingerprint": "06a63ec809ee75262d4855f06c0c7bd6",
            },
        },
    }


def changed(state, path, value):
    state = copy.deepcopy(state)
    part = state
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return state


@pytest.mark.parametrize(
    ("path", "value", "error", "message"),
    [
        (("version",), 2, StateMismatchError, "state must be one with version=1, got version=2"),
        (("exact",), False, StateMismatchError, "state must be one with exact=True, got exact=False"),
        (("account",), 7, TypeError, r"state must be a dict from Ledger.state_dict\(\), got account=7"),
        (("account",), {}, TypeError, "got account={}"),
        (("account", "epoch"), -1, ValueError, r"epoch must be in \[0, 2\^64\), got epoch=-1"),
        (("account", "place"), "x", TypeError, "place must be an int, got place='x'"),
        (("account", "num_ids"), 0, ValueError, "num_ids must be in .*, got num_ids=0"),
        (("account", "own", "rank"), 2, ValueError, r"rank must be in \[0, 2\), got rank=2"),
        (("account", "base"), None, TypeError, "got figures=None"),
        (("account", "own", "num_replicas"), None, TypeError, "num_replicas must be an int, got num_replicas=None"),
        (("account", "own", "count"), -1, ValueError, "count must be in .*, got count=-1"),
        (("account", "own", "fingerprint"), 3, TypeError, "got figures="),
        (("account", "own", "fingerprint"), "xyz", ValueError, "xyz"),
        (("account", "own", "coverage"), "!", ValueError, "the state's coverage is damaged"),
        (("account", "own", "coverage"), "AAAA", ValueError, "the state's coverage is damaged"),
        (("account", "num_ids"), 99, ValueError, "these 8 bytes are no coverage of 99 ids"),
    ],
)
def test_what_is_no_state_is_refused_with_what_is_wrong(path, value, error, message):
    ledger = Ledger(exact=True)
    with pytest.raises(error, match=message):
        ledger.load_state_dict(changed(states(drawn(2, 10, exact=True))[0], path, value))
    with pytest.raises(TypeError, match=r"state must be a dict from Ledger.state_dict\(\), got state=\[\]"):
        ledger.load_state_dict([])
    assert ledger.state_dict()["account"] is None


def test_an_exact_state_holds_a_bit_an_id():
    state = states(drawn(1, 50_000, 80_000, exact=True))[0]
    assert len(base64.b64decode(state["account"]["own"]["coverage"])) < 80_000 / 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ledgers: ledgers[2].begin(Ordered([1], 24, 6)), "epoch: 5 on ranks 0, 1, 6 on rank 2"),
        (
            lambda ledgers: setattr(ledgers[1]._expected, "consumed", 9),
            "place: 10 on ranks 0, 2, 9 on rank 1",
        ),
        (
            lambda ledgers: ledgers[0].load_state_dict(Ledger().state_dict()),
            "epoch: missing on rank 0, 5 on ranks 1, 2",
        ),
        (
            lambda ledgers: ledgers[0].load_state_dict(states(drawn(3, 10))[0]),
            "states of earlier ranks: 3 on rank 0, 0 on ranks 1, 2",
        ),
    ],
)
def test_ranks_with_different_accounts_raise_everywhere_and_name_values(change, message):
    ledgers = drawn(3, 10)
    change(ledgers)
    errors = verify_together(ledgers)
    assert all(isinstance(error, LedgerError) for error in errors)
    assert {str(error) for error in errors} == {str(errors[0])}
    assert str(errors[0]).startswith("ranks have different accounts; ")
    assert message in str(errors[0])


def test_where_one_rank_can_not_name_samples_all_say_at_least_how_many_draws_are_wrong():
    ledgers = drawn(2, 10, exact=True)
    ledgers[0].record([3])
    ledgers[1]._expected.add_to = lambda *_: 1 / 0
    messages = ["epoch 5: 1 draw too many: 11 where there should be 10"] * 2
    assert list(map(str, verify_together(ledgers))) == messages


def test_an_error_on_one_rank_raises_on_all():
    ledgers = drawn(3, 10)
    ledgers[1]._expected.order = ["three"] * 24
    errors = verify_together(ledgers)
    message = "the ledger can't be added up: rank 1: TypeError: ids must be ints, got ids[0]='three'"
    assert [str(error) for error in errors] == [message] * 3
    assert isinstance(errors[1].__cause__, TypeError)


@pytest.mark.parametrize("exact", [False, True])
def test_copies_of_a_ledger_have_its_account(exact):
    ledger = Ledger(exact=exact)
    ledger.begin(RangeExpected(5))
    ledger.record([3, 1])
    for again in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        again.record([0, 2, 4])
        assert again.verify().draws == 5
    with pytest.raises(LedgerError, match="3 draws too few"):
        ledger.verify()
