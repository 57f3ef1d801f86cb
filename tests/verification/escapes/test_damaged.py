"""A damaged store is told as one by every command that reads it: 14, no traceback, and nothing that it did not hold."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from qualgate.errors import Exit, IntegrityError
from qualgate.store import decisions, queries
from qualgate.store.database import open_store
from tests.app.conftest import MAIN
from tests.depth import with_proofs
from tests.verification.escapes.damaged import (
    ATTACKS,
    KINDS,
    Damage,
    attacked,
    called,
    commands,
    damaged,
    damages,
    make_store,
)

EVERY = tuple(damages())
TABLES = sorted({damage.table for damage in EVERY})
SAMPLED = "a sample of all"  # every fourth column with one kind of damage, each kind in turn
# Not sealed, and of no weight: shown beside a verdict, or read by nothing.
UNSEALED = {"evalsets.description", "runs.finished_at", "verdicts.created_at", "units.error", "units.attempts"}


@dataclass(frozen=True)
class Made:
    path: Path
    run: str
    said: dict[str, tuple[int, str]]  # command → what it says of the store as it was


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    folder = tmp_path_factory.mktemp("damaged")
    run = make_store(folder / "made.db")
    shutil.copy(folder / "made.db", folder / "whole.db")
    asked = commands(f"sqlite:///{folder / 'whole.db'}", run)
    said = {name: answer(name, *arguments) for name, arguments in asked.items()}
    assert {code for code, _ in said.values()} == {Exit.APPROVE, Exit.BLOCK}
    return Made(folder / "made.db", run, said)


def answer(name: str, *arguments: str) -> tuple[int, str]:
    """Code and text, without the store's path. A list of runs is taken for the verdicts that it names: how many answers
    are in it counts, and checks none."""
    code, text = called(*arguments)
    words = re.findall(r"^ +(int\S+) +([A-Z]{2,})", text, re.MULTILINE)
    return code, str(words) if name == "runs" else re.sub(r"sqlite:/\S*", "", text)


def wrong(made: Made, store: Path, damage: Damage, name: str) -> str:
    """What a command says of the damaged store that is neither 14 nor what it said of the whole one."""
    if f"{damage.table}.{damage.column}" in UNSEALED or not damaged(made.path, store, damage):
        return ""
    found = answer(name, *commands(f"sqlite:///{store}", made.run)[name])
    return "" if found[0] == Exit.INTEGRITY or found == made.said[name] else f"{name}: {found[0]} {found[1][:400]}"


@pytest.mark.parametrize("table", [SAMPLED, *(pytest.param(table, marks=pytest.mark.proof) for table in TABLES)])
def test_whatever_column_is_damaged_in_whatever_way_a_command_ends_in_14_or_says_the_same(made, tmp_path, table):
    """Every kind of damage to a column meets another command."""
    damages = EVERY[::58] if table == SAMPLED else [damage for damage in EVERY if damage.table == table]
    names = list(made.said)
    found = {
        damage.name: wrong(made, tmp_path / "q.db", damage, names[(at + at // len(KINDS)) % len(names)])
        for at, damage in enumerate(damages)
    }
    assert {name: said for name, said in found.items() if said} == {}


def sampled(every: int) -> list:
    """All attacks, of which one in so many is tried at every change."""
    assert len(ATTACKS) >= 25
    return with_proofs(ATTACKS, {*ATTACKS} - {*[*ATTACKS][::every]})


@pytest.mark.parametrize("attack", sampled(5))
def test_no_attack_on_a_store_makes_a_blocked_variant_approved(made, tmp_path, attack: str) -> None:
    attacked(made.path, tmp_path / "q.db", ATTACKS[attack])
    asked = commands(f"sqlite:///{tmp_path / 'q.db'}", made.run)
    for name in ("report", "report json", "runs", "gate"):
        code, text = answer(name, *asked[name])
        same = (code, text) == made.said[name]
        assert code == Exit.INTEGRITY or (same and name in ("runs", "gate")), name
        assert not re.search(r"int2-g32\W+approve", text, re.IGNORECASE)


@pytest.mark.parametrize("attack", sampled(15))
def test_no_page_of_an_attacked_store_approves(made, tmp_path, monkeypatch, attack: str) -> None:
    attacked(made.path, tmp_path / "q.db", ATTACKS[attack])
    monkeypatch.setenv("QUALGATE_STORE", f"sqlite:///{tmp_path / 'q.db'}")
    app = AppTest.from_file(str(MAIN), default_timeout=30)
    app.query_params |= {"run": made.run, "variant": "int2-g32"}
    page = app.run().switch_page("views/verdict.py").run()
    assert not page.exception
    shown = "".join(one.proto.body for one in page.get("html"))
    assert re.search(r'chip[^"]*"[^>]*>invalid<', shown)
    assert not re.search(r'qg-title.*chip[^"]*"[^>]*>approve<', shown)


def test_nobody_can_approve_what_rests_on_a_damaged_answer(made, tmp_path) -> None:
    attacked(made.path, tmp_path / "q.db", ATTACKS["an answer"])
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        seen = queries.run_summary(store, made.run).verdicts[0]
        with pytest.raises(IntegrityError, match="the stored answer or its scores"):
            decisions.append(
                store,
                made.run,
                "int8",
                decisions.Said(action="approve", name="Ada", reason="fine"),
                decisions.Seen(seen.sha256, seen.decisions[-1].hash),
            )


def test_the_damaged_row_is_named(made, tmp_path) -> None:
    damaged(made.path, tmp_path / "q.db", Damage("units", "text", "text that is no UTF-8"))
    with (
        pytest.raises(IntegrityError, match=r"units\.text of the row with unit_id \d+ is no UTF-8.*backup"),
        open_store(f"sqlite:///{tmp_path / 'q.db'}") as store,
    ):
        queries.checked_run(store, made.run)
