"""The numbers of a verdict are the same on the terminal, in JSON, in the HTML bundle and on the page, by digest."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.command_line import qualgate

HEADS = ("rule", "slice", "tier", "n", "baseline", "variant", "difference [bounds]", "lost / gained", "result")
VARIANTS = ("int8", "int4-g32", "mxfp4", "int2-g32")


class Tables(HTMLParser):
    """The cells of each row of a page, as text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        self._in_cell |= tag in ("td", "th")
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def digests(rows: list[list[str]]) -> list[str]:
    """A digest for each table of rules, in order: of its rows, spaces apart."""
    tables: list[list[tuple[str, ...]]] = []
    inside = False
    for row in rows:
        cells = tuple(re.sub(r"^[✓✗?!] ", "", " ".join(cell.split())) for cell in row)
        if cells == HEADS:
            tables.append([])
        inside = cells == HEADS or (inside and len(cells) == len(HEADS))
        if inside and cells != HEADS:
            tables[-1].append(cells)
    return [sha256(json.dumps(table).encode()).hexdigest() for table in tables]


def written(one: dict[str, Any]) -> list[str]:
    """The row of a comparison in the JSON report, by rules of this test's own."""
    quality = not one["metric"].startswith("drift.")
    share = (lambda value: "–" if value is None else f"{100 * value:.1f} %") if quality else "{:.4g}".format
    value = [share(one[side]) if one[side] is not None else "–" for side in ("baseline", "variant")]
    places = "{:+.1f}" if quality else "{:.4g}"
    scale = 100 if quality else 1
    bounds = f"[{', '.join(places.format(scale * one[side]) for side in ('lower', 'upper'))}]"
    changed = bounds if one["difference"] is None else f"{places.format(scale * one['difference'])} {bounds}"
    flips = "–" if one["lost"] is None else f"{one['lost']} / {one['gained']}"
    return [one["rule"], one["slice"], one["tier"], str(one["n"]), *value, changed, flips, one["status"]]


@pytest.fixture(scope="module")
def reports(made_once) -> dict[str, str]:
    found = {}
    for form in ("terminal", "json", "html"):
        done = qualgate(
            "report", "--run", made_once.complete, "--store", made_once.url, "--format", form, COLUMNS="300"
        )
        found[form] = done.stdout
    return found


def test_the_numbers_of_each_verdict_are_the_same_wherever_they_are_shown(made, open_page, reports):
    by_json = {one["variant"]: one for one in json.loads(reports["json"])["verdicts"]}
    of_json = [digests([[*HEADS], *map(written, by_json[name]["comparisons"])])[0] for name in VARIANTS]
    assert len(set(of_json)) == len(VARIANTS)
    lines = [re.split(r" {2,}", line.strip()) for line in reports["terminal"].splitlines()]
    assert digests(lines) == of_json
    assert digests(Tables(reports["html"]).rows) == of_json
    for name, expected in zip(VARIANTS, of_json, strict=True):
        page = open_page("verdict", run=made.complete, variant=name)
        assert digests(Tables("".join(one.proto.body for one in page.get("html"))).rows) == [expected]
