"""What the store promises of a judge's replies: kept as they came, once, and sealed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import insert, text

from qualgate.errors import QualgateError
from qualgate.records import Judgement
from qualgate.records.identity import content_hash
from qualgate.store import judgements, runs
from qualgate.store.sealed import COVERED, sealed_row
from qualgate.store.tables import sealed
from tests.store.made import make_plan
from tests.store.tampering import tamper

ONE = Judgement(variant="int8", evalset="s", case_id="c", repeat=0, swapped=False, asked="f" * 64,
                reply='{"verdict": "A"}\udc80', error="", served="m; vllm 0.32")  # fmt: skip
OTHER = replace(ONE, swapped=True, reply=None, error="it refuses")


@pytest.fixture
def begun(store):
    return runs.begin(store, make_plan(cases=2)).run_id


def test_replies_come_back_as_they_came_and_a_second_one_changes_nothing(store, begun):
    judgements.add(store, begun, "judge/1 a", [OTHER, ONE])
    judgements.add(store, begun, "judge/1 a", [replace(ONE, reply="B")])
    kept = replace(ONE, reply='{"verdict": "A"}\\udc80')  # what no database takes is written out
    assert judgements.read(store, begun, "judge/1 a") == ((kept, OTHER), "")
    assert judgements.read(store, begun, "judge/1 b") == ((), "")


def test_they_are_append_only_and_a_change_is_found(store, begun):
    judgements.add(store, begun, "judge/1 a", [ONE])
    for change in ("update sealed set body_json = 'B'", "delete from sealed"):
        with pytest.raises(QualgateError, match="append-only"), store.write() as connection:
            connection.execute(text(change))
    tamper(store, 'update sealed set body_json = replace(body_json, \'"error":"\', \'"error":"x\')')
    found, fault = judgements.read(store, begun, "judge/1 a")
    assert found == ()
    assert "int8: s/c#0: what the judge replied is not what was recorded" in fault


@pytest.mark.parametrize("part", ["int8: s/c#0", "int8: s/c#0 again"])
def test_a_second_reply_to_one_request_is_found_however_it_is_sealed(store, begun, part):
    judgements.add(store, begun, "judge/1 a", [ONE])
    twin = sealed_row("judgement", replace(ONE, reply="B"), run_id=begun, name="judge/1 a", part=part)
    own_key = {**twin, "key": "0" * 64}
    twin = (
        own_key | {"sha256": content_hash({name: own_key[name] for name in COVERED})} if "again" not in part else twin
    )
    with store.write() as connection:
        connection.execute(insert(sealed), [twin])
    found, fault = judgements.read(store, begun, "judge/1 a")
    assert found == ()
    assert "is not what was recorded" in fault
