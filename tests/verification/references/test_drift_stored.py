"""A small slice of the rows that `tests.verification.references.drift_stored` measures."""

from __future__ import annotations

import pytest

from tests.verification.goals import STORED
from tests.verification.references import drift_stored


@pytest.mark.proof
def test_the_rows_of_a_small_slice(monkeypatch):
    monkeypatch.setattr(drift_stored, "VOCABULARY", 20_000)
    monkeypatch.setattr(drift_stored, "WIDTH", 64)
    wide, small = drift_stored._wide, drift_stored._reference_model
    monkeypatch.setattr(drift_stored, "_wide", lambda positions: wide(6))
    monkeypatch.setattr(drift_stored, "_reference_model", lambda per_set: small(1))
    rounds, goals = drift_stored.rows(quick=True)
    assert [row["id"] for row in goals] == list(STORED)
    assert all(row["met"] for row in goals if row["id"] != "drift.bytes"), goals  # few positions compress badly
    lines, reference, made = rounds
    assert set(lines["lines_equal_of_34"].values()) == {34}
    assert reference["hidden_positions"] == 0 < made["hidden_positions"]
    assert made["bytes"] < made["llama_bytes"] / 50
