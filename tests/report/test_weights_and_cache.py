"""Weights and cache apart and together, in every format that tells of a verdict."""

from __future__ import annotations

import re

import pytest

from qualgate.gate.decide import decide
from qualgate.report.blocks import Section
from qualgate.report.summary import Report
from qualgate.report.unstored import report_of
from qualgate.report.weights_and_cache import weights_and_cache_sections
from qualgate.store.plain import to_json
from qualgate.store.typed import read
from tests.gate.test_weights_and_cache import POLICY, four, scores
from tests.report.reading import cells, checked_json, shown
from tests.report.test_speculation import printed


@pytest.fixture(scope="module")
def report() -> Report:
    given = four(scores(200, weights=6, cache=3, together=24))
    return report_of(given, decide(given, POLICY).verdicts, POLICY, list("bwcx"))


def found(report: Report) -> Section:
    (section,) = (section for verdict in report.verdicts for section in weights_and_cache_sections(verdict))
    return section


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_a_report_says_what_each_did_alone_and_what_they_do_together(form, report):
    text = shown(report, form)
    assert text.count("Weights and cache, apart and together") == 1
    for cell in cells([found(report)]):
        assert cell in text, cell


def test_a_narrow_terminal_says_it_row_by_row_and_a_wide_one_as_a_table(report, monkeypatch):
    text = " ".join(printed(report, monkeypatch, 120).split())
    for part in ("weights alone (int4) -3.00 [", "keys and values alone (kv8) -1.50 [", "both (int4+kv8) -16.50 [",
                 "both beyond the sum of the two -12.00 [", "FOUND"):  # fmt: skip
        assert part in text
    wide = printed(report, monkeypatch, 240)
    assert re.search(r"metric +slice +weights alone \(int4\) +keys and values alone \(kv8\)", wide)


def test_json_holds_the_numbers_and_its_schema_promises_them(report):
    told = [one["weights_and_cache"] for one in checked_json(report)["verdicts"]]
    assert told[:2] == [None, None]
    assert told[2]["interactions"][0]["estimate"] == pytest.approx(-0.12)
    assert [one["variant"] for one in told[2]["effects"]] == ["int4", "kv8", "int4+kv8"]


def test_a_store_gives_back_what_it_was_given(report):
    for verdict in report.verdicts:
        assert read(type(verdict), to_json(verdict)) == verdict
