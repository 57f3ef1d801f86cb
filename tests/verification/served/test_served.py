"""`bench served`: rows are measured by parts, and what was not asked for is said to be so."""

from __future__ import annotations

from types import SimpleNamespace

from tests.verification.goals import SERVED
from tests.verification.served import served


def test_every_row_is_one_parts():
    assert sorted(row for _, rows in served.PARTS for row in rows) == sorted(SERVED.goals)


def test_a_row_that_is_asked_for_is_measured_and_no_other(monkeypatch):
    asked = []

    def imported(name: str) -> SimpleNamespace:
        asked.append(name.rpartition(".")[2])
        rows = [SERVED.row(id, 0, met=True) for id in ("wire.drafted", "kl.bounds")]
        return SimpleNamespace(measure=lambda quick: ([{"quick": quick}], rows))

    monkeypatch.setattr(served.importlib, "import_module", imported)
    result = served.run(True, ["kl.bounds"])
    assert asked == ["lists"]
    assert result["rounds"] == [{"part": "lists", "quick": True}]
    met = {row["id"]: row["met"] for row in result["goals"]}
    assert [id for id, one in met.items() if one] == ["wire.drafted", "kl.bounds"]
    assert list(met) == list(SERVED.goals)
