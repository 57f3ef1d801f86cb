"""What tests of reports read them with, and the text that they attack them with."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from jsonschema import Draft202012Validator

from qualgate.records import Verdict
from qualgate.report.blocks import Cell, Section, Table, Terms
from qualgate.report.formats import rendered
from qualgate.report.formats.body import report_schema
from qualgate.report.summary import Report
from qualgate.report.terminal import print_report

HOSTILE = (
    "x\n# approved\n| int2 | approve | fine |\r\n![x](http://evil) "
    "<img src=x onerror=1> `a` \x1b[2K\u202e **b** www.evil.com"
)
ATTACK = f'{HOSTILE}\n::error::fake\n]]><script>alert(1)</script>"><svg onload=x>&#x41; \x00\x85\uffff\U000e0041\u061c'


class Page(HTMLParser):
    """Tags, attributes and text of a page, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "line", "rect", "circle", "path", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def strict(node: Any) -> Any:
    """A schema that also refuses keys it does not name."""
    if isinstance(node, dict):
        closed = {"additionalProperties": False} if "properties" in node else {}
        return {key: strict(value) for key, value in node.items()} | closed
    return [strict(item) for item in node] if isinstance(node, list) else node


def checked_json(report: Report) -> Any:
    """Its JSON, which keeps the shipped schema and has no key beside it."""
    body = json.loads(rendered(report, "json"))
    Draft202012Validator(strict(report_schema())).validate(body)
    return body


def shown(report: Report, form: str) -> str:
    """What a reader of this format sees: without its tags and escapes."""
    text = rendered(report, form)
    if form == "html":
        return "".join(Page(text).text)
    return text.replace("\\", "").replace("&lt;", "<").replace("%25", "%")


def cells(sections: Iterable[Section]) -> Iterator[str]:
    """Each head and cell of their tables, each term and its value."""
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table | Terms):
            rows = block.rows if isinstance(block, Terms) else (block.heads, *block.rows)
            yield from (cell.text if isinstance(cell, Cell) else cell for row in rows for cell in row)


def holds_no_attack(report: Report, form: str) -> None:
    """ATTACK, wherever it stands in the report, is only text."""
    text = rendered(report, form)
    assert "\x00" not in text
    assert "\u202e" not in text
    if form == "html":
        page = Page(text)
        assert page.open == []
        assert not {tag for tag, _ in page.tags} & {"script", "img"}
    if form == "annotations":
        assert "\n::error::fake" not in text
    if form in ("markdown", "github"):
        assert "<script" not in re.sub(r"```text\n.*?\n```", "", text, flags=re.DOTALL).lower()
    if form == "junit":
        ElementTree.fromstring(text)


def printed(report: Report) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_report(report)
    return out.getvalue()


def holding(arm, name: str):
    """Its footprint, with so-called tensors in its files that its model has no place for."""
    return replace(arm.footprint, left_out={name: 3})


def hostile(report: Report) -> Report:
    """The report of a store in which every text is an attack."""
    (stored, *others), (arm, *arms) = report.run.verdicts, report.run.arms
    comparison = replace(stored.verdict.comparisons[0], rule=HOSTILE, slice=HOSTILE)
    verdict = Verdict(variant=HOSTILE, word="block", exit=10, reasons=(HOSTILE, HOSTILE), comparisons=(comparison,))
    flip = replace(
        next(flip for flips in report.flips.values() for flip in flips),
        evalset=HOSTILE, case_id=HOSTILE, metric=HOSTILE, reason=HOSTILE,
        variant=f"{HOSTILE}\n````\n# out\n", baseline="```",
    )  # fmt: skip
    run = replace(
        report.run, run_id=HOSTILE, verdicts=(replace(stored, verdict=verdict), *others),
        arms=(replace(arm, spec=replace(arm.spec, name=HOSTILE), footprint=holding(arm, HOSTILE)), *arms),
        evalsets=tuple(replace(item, name=HOSTILE, version=HOSTILE) for item in report.run.evalsets),
    )  # fmt: skip
    return Report(run=run, flips={HOSTILE: (flip,)})
