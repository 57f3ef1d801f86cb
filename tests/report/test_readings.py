"""Tool calls by each reading: what a server's parser forgave is told beside what is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.report.blocks import Table
from qualgate.report.formats import rendered
from qualgate.report.readings import reading_sections
from qualgate.report.summary import Report
from qualgate.store.queries import read_by
from tests.report.reading import ATTACK, checked_json, holds_no_attack

STRICT = {"a": (1.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 0.0), "d": (None, None)}
SERVED = {"a": (1.0, 1.0), "b": (1.0, 1.0), "c": (0.0, 1.0), "d": (1.0, 1.0)}


def pairs(values, name="calls", scorer="tool_call/9"):
    return [(name, case, 0, *both, None, scorer) for case, both in values.items()]


def test_what_is_right_as_served_and_wrong_strictly_was_forgiven():
    served = pairs(SERVED, scorer="tool_call.served/4 SGLang 0.5.23 reasoning/1 think")
    (found,) = read_by({"tool_call.served": served, "tool_call.correct": pairs(STRICT)[::-1]})
    ((table,),) = (section.blocks for section in reading_sections([found]))
    assert isinstance(table, Table)
    assert table.rows == (("strict", "4", "2", "1", "0", "0"), ("served by SGLang 0.5.23", "4", "3", "4", "0", "2"))


def test_a_set_of_two_servers_names_both():
    served = pairs({"a": (1.0, 1.0)}, scorer="tool_call.served/4 vLLM 0.33.0")
    served += pairs({"b": (1.0, 1.0)}, scorer="tool_call.served/4 SGLang 0.5.23")
    (found,) = read_by({"tool_call.served": served, "tool_call.correct": pairs(STRICT)})
    assert found.lines[1].reading == "served by SGLang 0.5.23 and vLLM 0.33.0"


def test_a_set_of_one_reading_has_nothing_beside_it():
    assert read_by({"tool_call.served": pairs(SERVED), "tool_call.correct": pairs(STRICT, "other")}) == ()


@pytest.mark.parametrize("name", ["calls", ATTACK])
def test_every_format_shows_them_and_their_text_is_only_text(report: Report, name):
    told = read_by({"tool_call.served": pairs(SERVED, name), "tool_call.correct": pairs(STRICT, name)})
    variant = report.verdicts[0].variant
    shown = replace(report, readings={variant: told})
    assert checked_json(shown)["readings"][variant][0]["lines"][1]["variant_forgiven"] == 2
    for kind in ("markdown", "html"):
        text = rendered(shown, kind)
        assert "served" in text
        assert "variant forgiven" in text
        holds_no_attack(shown, kind)
