"""Weights and cache apart and together, in every format that tells of a verdict."""

from __future__ import annotations

import pytest

from qualgate.gate.decide import decide
from qualgate.records import WeightsAndCache
from qualgate.report.arms import weights_and_cache_heads, weights_and_cache_lines, weights_and_cache_rows
from qualgate.report.summary import Report
from qualgate.report.unstored import report_of
from qualgate.store.plain import to_json
from qualgate.store.typed import read
from tests.gate.test_weights_and_cache import POLICY, four, scores
from tests.report.reading import checked_json, shown
from tests.report.test_speculation import printed


@pytest.fixture(scope="module")
def report() -> Report:
    given = four(scores(200, weights=6, cache=3, together=24))
    return report_of(given, decide(given, POLICY).verdicts, POLICY, list("bwcx"))


def found(report: Report) -> WeightsAndCache:
    (told,) = (one.weights_and_cache for one in report.verdicts if one.weights_and_cache is not None)
    return told


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_a_report_says_what_each_did_alone_and_what_they_do_together(form, report):
    text, told = shown(report, form), found(report)
    assert text.count("Weights and cache, apart and together") == 1
    for row in (weights_and_cache_heads(told), *weights_and_cache_rows(told)):
        assert all(cell in text for cell in row), row


def test_a_terminal_says_it_in_a_line_a_metric(report, monkeypatch):
    (line,) = weights_and_cache_lines(found(report))
    assert "weights alone (int4) -3.00 [" in line
    assert "keys and values alone (kv8) -1.50 [" in line
    assert "both (int4+kv8) -16.50 [" in line
    assert "both beyond the sum of the two -12.00 [" in line
    assert "FOUND" in line
    assert " ".join(line.split()) in " ".join(printed(report, monkeypatch, 120).split())


def test_json_holds_the_numbers_and_its_schema_promises_them(report):
    told = [one["weights_and_cache"] for one in checked_json(report)["verdicts"]]
    assert told[:2] == [None, None]
    assert told[2]["interactions"][0]["estimate"] == pytest.approx(-0.12)
    assert [one["variant"] for one in told[2]["effects"]] == ["int4", "kv8", "int4+kv8"]


def test_a_store_gives_back_what_it_was_given(report):
    for verdict in report.verdicts:
        assert read(type(verdict), to_json(verdict)) == verdict
