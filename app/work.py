"""Read and write who reviews a verdict, and which answers a reviewer has opened."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import streamlit as st
from qualgate_app.data import url
from qualgate_app.person import Person

from qualgate.errors import QualgateError
from qualgate.records import UnitKey
from qualgate.store import claims, openings
from qualgate.store.clock import clock
from qualgate.store.database import open_store
from qualgate.store.labels import CaseOfRun


def now() -> datetime:
    """Return the store's time, by which claims lapse."""
    with open_store(url(), create=False) as store, store.read() as connection:
        return datetime.fromtimestamp(clock(connection), UTC)


def claim(run_id: str, variant: str, holder: str, by: Person, assigned: bool) -> None:
    """Claim a verdict, assign it, or release it with `holder` ""."""
    with open_store(url(), create=False) as store:
        claims.claim(store, run_id, variant, holder, name=by.name, signed_in=by.identity, assigned=assigned)


def keep_claim(run_id: str, variant: str, mine: Person) -> claims.Claim | None:
    """Return the claim on a verdict, with a sign of life if it is the reader's own."""
    with open_store(url(), create=False) as store:
        return claims.keep(store, run_id, variant, mine.who, mine.identity)


def note_opened(run_id: str, unit: UnitKey, mine: Person) -> None:
    """Record that the reader opened an answer. Until they have a name, and where they may not write, it is kept for
    this session alone."""
    if unit in (opened := _opened_here(run_id, unit.arm)):
        return
    opened[unit] = False
    if mine.who and mine.may_label:
        with suppress(QualgateError), open_store(url(), create=False) as store:
            for one in [one for one, written in opened.items() if not written]:
                openings.note_opened(store, run_id, one, mine.who, mine.identity)
                opened[one] = True


def opened_cases(run_id: str, variant: str, mine: Person) -> tuple[frozenset[CaseOfRun], frozenset[CaseOfRun]]:
    """Return the answers that the reader opened, and those that anybody did."""
    with open_store(url(), create=False) as store:
        by_person = openings.opened(store, run_id, variant)
    own = by_person.get(mine.who, frozenset()) | {
        (unit.evalset, unit.case_id, unit.repeat) for unit in _opened_here(run_id, variant)
    }
    return own, own.union(*by_person.values())


def _opened_here(run_id: str, variant: str) -> dict[UnitKey, bool]:
    """Return the answers that were opened in this session → whether the store has it."""
    return st.session_state.setdefault(f"opened answers {run_id} {variant}", {})
