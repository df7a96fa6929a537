"""The golden files of orders whose arguments are more than a size and a seed."""

import hashlib
import json
import pathlib

import pytest

from fastshard import orders

GOLDEN = sorted((pathlib.Path(__file__).parent / "golden" / "orders").glob("*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_orders_give_the_ids_of_the_reference(path):
    golden = json.loads(path.read_text())
    assert len(golden["orders"]) >= 5
    for entry in golden["orders"]:
        order = eval(entry["order"], vars(orders))
        assert type(order).name == golden["name"]
        ids = order.indices(entry["epoch"])
        assert ids[:20].tolist() == entry["first"]
        assert ids[-20:].tolist() == entry["last"]
        assert hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest() == entry["sha256"]


def test_every_such_order_has_a_golden_file():
    assert {json.loads(path.read_text())["name"] for path in GOLDEN} == {
        orders.BlockShuffled.name,
        orders.LengthGrouped.name,
        orders.Mixed.name,
        orders.Repeated.name,
        orders.Weighted.name,
    }
