"""Ledger: the account of what all ranks drew of an epoch, over restarts and world sizes, and proof that it is right."""

from fastshard.ledger.expected import Expected, RangeExpected
from fastshard.ledger.ledger import Ledger
from fastshard.ledger.listed import ListedExpected
from fastshard.ledger.reckoning import LedgerReport

__all__ = ["Expected", "Ledger", "LedgerReport", "ListedExpected", "RangeExpected"]
