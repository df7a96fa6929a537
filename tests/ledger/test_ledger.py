"""One rank's Ledger: what it says of an epoch, what it takes, and when an account goes on."""

import numpy as np
import pytest
import torch
from ranks import Ordered, gather_together, loaded, state_of, verify_together

from fastshard import Ledger, LedgerError, RangeExpected, StateMismatchError, _core
from fastshard.audit import format_coverage, measure_coverage
from fastshard.orders import Shuffled


def begun(expected, exact=False):
    ledger = Ledger(exact=exact)
    ledger.begin(expected)
    return ledger


def ordered(n, epoch=0, start=0, consumed=None, what="samples"):
    return Ordered(Shuffled(n, 1).indices(epoch).tolist(), n, epoch, start, consumed, what)


def test_a_right_epoch_is_said_in_the_words_of_the_audit():
    ids = Shuffled(1797, 0).indices(0)
    ledger = begun(RangeExpected(1797))
    ledger.record(ids[:1000])
    ledger.record(torch.from_numpy(ids[1000:]))
    ledger.record([int(ids[0])], padding=1)
    report = ledger.verify()
    assert str(report) == "every one of the 1,797 samples exactly once, 1 padded draw"
    assert format_coverage([measure_coverage([[*ids, ids[0]]], [1], 1797)]).endswith(str(report))
    assert (report.epoch, report.draws, report.padded, report.num_ids) == (0, 1798, 1, 1797)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (ordered(20, consumed=12), "every one of the 12 samples up to position 12 exactly once, 0 padded draws"),
        (ordered(20, start=5), "every one of the 15 samples from position 5 on exactly once, 0 padded draws"),
        (
            ordered(20, start=5, consumed=6),
            "every one of the 1 sample from position 5 on up to position 6 exactly once, 0 padded draws",
        ),
        (
            ordered(20, what="draws of weighted/1"),
            "every one of the 20 draws of weighted/1 exactly once, 0 padded draws",
        ),
        (
            Ordered([4], 20, what="draws of weighted/1"),
            "every one of the 1 draw of weighted/1 exactly once, 0 padded draws",
        ),
        (Ordered(list(range(18)), 20), "18 of the 20 samples exactly once, 0 padded draws"),
    ],
)
def test_a_report_says_which_part_of_the_epoch_was_drawn(expected, words):
    ledger = begun(expected)
    ledger.record(expected.order[expected.start : expected.consumed])
    assert str(ledger.verify()) == words


@pytest.mark.parametrize(
    ("ids", "message", "missing", "doubled"),
    [
        ([0, 1], "epoch 7: 3 draws too few: 2 where there should be 5", [2, 3, 4], []),
        ([0, 1, 2, 3, 4, 4], "epoch 7: 1 draw too many: 6 where there should be 5", [], [4]),
        (
            [0, 1, 2, 4, 4],
            "epoch 7: 5 draws as there should be, but not of the right samples: some came in others' place",
            [3],
            [4],
        ),
    ],
)
def test_a_wrong_epoch_says_what_is_wrong_and_exactly_which_samples(ids, message, missing, doubled):
    named = "".join(
        f"; {len(found)} sample{'s' * (len(found) > 1)} {what}: {', '.join(map(str, found))}"
        for found, what in ((missing, "missing"), (doubled, "drawn too often"))
        if found
    )
    for exact in (False, True):
        ledger = begun(RangeExpected(5, 7), exact)
        ledger.record(ids)
        with pytest.raises(LedgerError) as caught:
            ledger.verify()
        assert str(caught.value) == message + (named if exact else "; Ledger(exact=True) names samples")
        assert (caught.value.missing, caught.value.doubled) == ((missing, doubled) if exact else ([], []))
        ledger.record([])
        with pytest.raises(LedgerError):  # and once more: verify changes nothing
            ledger.verify()


def test_an_error_names_a_thousand_samples_and_counts_all():
    ledger = begun(RangeExpected(3_000_000), exact=True)
    ledger.record(np.arange(2_500_000))
    ledger.record(np.arange(1_048_570, 1_048_580))
    with pytest.raises(
        LedgerError, match=r"500,000 samples missing: 2500000, 2500001, .*, \.\.\.; 10 samples"
    ) as caught:
        ledger.verify()
    assert (caught.value.num_missing, caught.value.num_doubled) == (500_000, 10)
    assert caught.value.missing == list(range(2_500_000, 2_501_000))
    assert caught.value.doubled == list(range(1_048_570, 1_048_580))


@pytest.mark.parametrize(
    ("ids", "padding", "error", "message"),
    [
        ([10], 0, ValueError, r"ids must be in \[0, 10\), got ids\[0\]=10"),
        ([1, 10], 1, ValueError, r"ids must be in \[0, 10\), got ids\[0\]=10"),
        ([1, 2], 3, ValueError, r"padding must be in \[0, 3\), got padding=3"),
        ([1, 2], -1, ValueError, r"padding must be in \[0, 3\), got padding=-1"),
        ([1, 2], 1.0, TypeError, r"padding must be an int, got padding=1\.0"),
        (np.array([0.5]), 0, TypeError, r"ids must be ints, got ids of dtype float64"),
        (torch.tensor([True]), 0, TypeError, r"ids must be ints, got ids of dtype bool"),
        (torch.tensor(3), 0, ValueError, r"ids must have one dimension, got ids of shape \(\)"),
        (np.array([2**63], np.uint64), 0, ValueError, r"ids must be in \[0, 2\^63\), got 9223372036854775808"),
        (np.array([-1], np.int8), 0, ValueError, r"ids must be in \[0, 10\), got ids\[0\]=-1"),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_wrong_ids_raise_and_leave_the_account_as_it_was(exact, ids, padding, error, message):
    ledger = begun(RangeExpected(10), exact)
    before = ledger.state_dict()
    with pytest.raises(error, match=message):
        ledger.record(ids, padding)
    assert ledger.state_dict() == before
    ledger.record(list(range(10)))
    assert ledger.verify().draws == 10


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2, 0],
        (3, 1, 2, 0),
        range(4),
        [np.int64(3), torch.tensor(1), 2, 0],
        np.array([3, 1, 2, 0], np.uint8),
        np.arange(8, dtype=np.int64)[::-2] // 2,
        torch.tensor([3, 1, 2, 0], dtype=torch.int32),
        torch.tensor([[3, 1], [2, 0]]).T.reshape(-1),
    ],
)
def test_ids_come_in_many_forms(ids):
    ledger = begun(RangeExpected(4))
    ledger.record([])
    ledger.record(np.array([]))
    ledger.record(ids)
    assert ledger.verify().draws == 4


def test_what_comes_in_the_wrong_turn_raises():
    ledger = Ledger()
    with pytest.raises(RuntimeError, match=r"no pass has begun; call begin\(expected\) before record"):
        ledger.record([1])
    with pytest.raises(LedgerError, match="no pass has begun on any rank"):
        ledger.verify()
    with pytest.raises(TypeError, match=r"expected must be an Expected, such as RangeExpected\(num_samples\), got 10"):
        ledger.begin(10)
    with pytest.raises(ValueError, match=r"group must be None where torch.distributed is not initialised"):
        ledger.verify(group=object())
    with pytest.raises(TypeError, match=r"exact must be True or False, got exact='yes'"):
        Ledger(exact="yes")
    ledger.gather()
    assert ledger.state_dict() == {"version": 1, "exact": False, "account": None}


@pytest.mark.parametrize("exact", [False, True])
def test_a_second_pass_from_the_same_place_takes_the_first_one_s_draws_out_again(exact):
    ledger = begun(ordered(30), exact)
    ledger.record([5, 6, 6])
    ledger.begin(ordered(30))
    first = ordered(30, consumed=12)
    ledger.begin(first)
    ledger.record(first.order[:12], 0)
    ledger = loaded(state_of(ledger, 0, 1))
    for _ in range(2):  # what came with the state stays
        rest = ordered(30, start=12)
        ledger.begin(rest)
        ledger.record(rest.order[12:])
    assert str(ledger.verify()) == "every one of the 30 samples exactly once, 0 padded draws"


def test_a_pass_that_goes_on_where_the_last_one_stopped_goes_on_with_its_account():
    ledger = Ledger()
    for start, stop in ((0, 4), (4, 5), (5, 5), (5, 9)):
        expected = ordered(9, start=start, consumed=stop)
        ledger.begin(expected)
        ledger.record(expected.order[start:stop])
    assert ledger.verify().start == 0


def test_a_pass_in_mid_epoch_without_its_account_says_from_where_on_it_knows():
    for epoch, start in ((0, 4), (1, 3)):
        ledger = begun(ordered(9, consumed=3))
        ledger.record(ordered(9).order[:3])
        rest = ordered(9, epoch, start)
        ledger.begin(rest)
        ledger.record(rest.order[start:])
        words = f"every one of the {9 - start} samples from position {start} on exactly once, 0 padded draws"
        assert str(ledger.verify()) == words


def test_the_next_epoch_begins_an_account_of_its_own():
    ledger = Ledger()
    for epoch in range(3):
        ledger.begin(RangeExpected(6, epoch))
        ledger.record(Shuffled(6, 0).indices(epoch))
        assert ledger.verify().epoch == epoch


def test_by_hand_an_epoch_goes_on_after_a_restart():
    ids = Shuffled(10, 0).indices(2).tolist()
    expected = RangeExpected(10, 2)
    ledger = begun(expected)
    ledger.record(ids[:6])
    expected.consumed = 6
    ledger = loaded(state_of(ledger, 0, 1))
    ledger.begin(RangeExpected(10, 2, start=6))
    ledger.record(ids[6:])
    assert str(ledger.verify()) == "every one of the 10 samples exactly once, 0 padded draws"


def test_a_pass_at_the_beginning_of_an_epoch_opens_an_account_whatever_was_loaded():
    expected = RangeExpected(10)
    ledger = begun(expected)
    ledger.record([1, 2])
    ledger.load_state_dict(state_of(ledger, 0, 1))  # without `consumed`: a state at position 0, yet with draws
    with pytest.raises(RuntimeError, match="no pass has begun"):
        ledger.record([3])
    ledger.begin(expected)
    ledger.record(range(10))
    assert ledger.verify().draws == 10


def test_a_range_that_begins_in_mid_epoch_needs_the_account_of_what_was_before():
    ledger = begun(RangeExpected(10, 2, start=6))
    with pytest.raises(ValueError, match=r"the ledger's account begins at position 6; load the ledger's state before"):
        ledger.verify()
    ledger.gather()  # which asks for nothing expected


def test_an_account_does_not_go_on_with_another_number_of_ids():
    ledger = begun(ordered(9, consumed=3))
    with pytest.raises(StateMismatchError, match="the account is one of num_ids=9, and the pass of 10"):
        ledger.begin(ordered(10, start=3))


def test_after_gather_an_abandoned_pass_leaves_no_account_up_to_its_beginning():
    ledger = begun(ordered(9, consumed=3))
    ledger.record(ordered(9).order[:3])
    ledger = loaded(state_of(ledger, 0, 1))
    expected = ordered(9, start=3, consumed=5)
    ledger.begin(expected)
    ledger.record(expected.order[3:5])
    gather_together([ledger])
    assert [each.place for each in verify_together([ledger])] == [5]
    ledger.begin(ordered(9, start=3))
    ledger.record(expected.order[3:])
    assert str(ledger.verify()).startswith("every one of the 6 samples from position 3 on")


def test_pieces_of_a_range_make_it_whole():
    whole, coverage = _core.Fingerprint(), _core.Coverage(1_000_003)
    for part in range(7):
        whole = whole + RangeExpected(1_000_003).fingerprint(0, part, 7)
        RangeExpected(1_000_003).add_to(coverage, 0, part, 7)
    assert whole == RangeExpected(1_000_003).fingerprint(0, 0, 1)
    assert (coverage.counts(0, 1_000_003) == 1).all()
