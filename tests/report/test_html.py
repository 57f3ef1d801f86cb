"""The HTML report loads nothing, runs nothing, and draws what the numbers say."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from qualgate.records import UnitKey, Verdict
from qualgate.report.formats import rendered
from qualgate.report.summary import Report, load_report
from qualgate.store import decisions, labels, queries, runs
from qualgate.store.database import open_store
from qualgate.store.decisions import Said
from qualgate.store.plain import stamp
from tests.report.reading import Page
from tests.store.made import make_plan, make_run

OURS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3", "p", "div", "a", "section",
    "dl", "dt", "dd",
    "table", "thead", "tbody", "tr", "th", "td", "span", "ul", "li", "figure", "figcaption", "svg", "line", "rect",
    "circle", "path", "polyline", "g", "text", "article", "pre", "del", "ins", "b", "br", "footer", "i",
    "details", "summary",
}  # fmt: skip


def test_the_page_loads_nothing_runs_nothing_and_shows_an_attack_as_text(attacked: Report) -> None:
    text = rendered(attacked, "html")
    page = Page(text)
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= OURS
    attributes = set(chain.from_iterable(found for _, found in page.tags))
    assert not {name for name in attributes if name.startswith("on")} | ({"style", "src", "action"} & attributes)
    assert all(found["href"].startswith("#") for _, found in page.tags if "href" in found)  # type: ignore[union-attr]
    assert "url(" not in text
    assert "@import" not in text
    shown = "".join(page.text)
    assert "<script>alert(1)</script>" in shown
    assert "\\u202e" in shown


def test_the_pages_security_policy_allows_its_own_style_alone(report: Report) -> None:
    from base64 import b64encode
    from hashlib import sha256

    text = rendered(report, "html")
    policy = next(f["content"] for tag, f in Page(text).tags if tag == "meta" and f.get("http-equiv"))
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_the_page_has_every_verdict_rule_and_flip_and_draws_them(report: Report) -> None:
    page = Page(rendered(report, "html"))
    shown = "".join(page.text)
    for verdict in report.verdicts:
        assert all(reason in shown for reason in verdict.reasons)
        assert all(one.rule in shown for one in verdict.comparisons)
    for flip in chain.from_iterable(report.flips.values()):
        assert f"{flip.evalset}/{flip.case_id}" in shown
    rows = sum(len(verdict.comparisons) for verdict in report.verdicts)
    assert sum(found.get("class") == "limit" for tag, found in page.tags if tag == "line") == rows
    assert sum(tag == "polyline" for tag, _ in page.tags) >= len(report.verdicts)


def margin_row(report: Report, **numbers: Any) -> str:
    """The page's first interval, drawn for these numbers under max_drop 0.02."""
    stored = report.run.verdicts[0]
    one = replace(stored.verdict.comparisons[0], **numbers)
    verdict = replace(stored.verdict, comparisons=(one,), drift={})
    found = replace(report, run=replace(report.run, verdicts=(replace(stored, verdict=verdict),)), flips={}, drift={})
    return re.findall('<svg class="row".*?</svg></svg>', rendered(replace(found, flip_counts={}), "html"))[0]


def test_an_interval_lies_where_its_numbers_say(report: Report) -> None:
    drawn = margin_row(report, status="broken", difference=-0.06, lower=-0.10, upper=-0.03)
    bounds = [float(x) for x in re.search('class="bar broken" x1="([\\d.]+)%" y1="15" x2="([\\d.]+)%"', drawn).groups()]  # type: ignore[union-attr]
    limit = float(re.search('class="limit" x1="([\\d.]+)%"', drawn).group(1))  # type: ignore[union-attr]
    zero = float(re.search('class="zero" x1="([\\d.]+)%"', drawn).group(1))  # type: ignore[union-attr]
    point = float(re.search('class="mark broken" x="([\\d.]+)%"', drawn).group(1))  # type: ignore[union-attr]
    scale = (zero - limit) / 2  # per cent of the width a point
    assert [(place - zero) / scale for place in (*bounds, point)] == pytest.approx([-10, -3, -6], abs=0.02)


def test_an_unknown_bound_reaches_the_edge_and_draws_no_end(report: Report) -> None:
    drawn = margin_row(report, status="undecided", difference=0.0, lower=-0.01, upper=None)
    assert re.search('class="bar undecided" x1="[\\d.]+%" y1="15" x2="100.00%"', drawn)
    assert drawn.count('class="bar undecided"') == 2, "the line and one end"


def test_drift_is_told_in_words_and_the_setting_stands_below_the_reasons(report: Report) -> None:
    page = rendered(report, "html")
    assert "<dt>mean KL (nats)</dt>" in page
    assert "kl p99" not in page
    assert page.index(report.verdicts[-1].reasons[0]) < page.index("What was judged")


def test_the_figures_of_what_passed_are_folded_and_all_else_lies_open(report: Report) -> None:
    """Its reasons, too, among which are those for caution."""
    text = rendered(report, "html")
    for number, verdict in enumerate(report.verdicts):
        section = text.partition(f'<section id="v{number}">')[2].partition("</section>")[0]
        open_, folded, _ = section.partition("<details>")
        assert bool(folded) is (verdict.word == "approve")
        assert all(escape(reason) in open_ for reason in verdict.reasons)
    assert {verdict.word for verdict in report.verdicts} > {"approve"}
    assert text.count("<details>") == text.count("</details></section>") == 1


def test_each_flip_shows_what_was_asked_and_expected(report: Report) -> None:
    said = "".join(Page(rendered(report, "html")).text)
    for flips in report.flips.values():
        for flip in flips:
            assert flip.prompt
            assert f"prompt{flip.prompt}reference{flip.reference}baseline" in said


def test_the_page_and_the_markdown_show_who_decided_and_the_labels_of_the_quoted_cases(tmp_path: Path) -> None:
    url, ends = f"sqlite:///{tmp_path / 'q.db'}", stamp(datetime.now(UTC) + timedelta(days=30))
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=20, wrong={"int2-g32": 0.4}))
        stored = queries.run_summary(store, run_id).verdict("int2-g32")
        assert stored is not None
        (first, second) = queries.flips(store, run_id, "int2-g32", direction="lost", limit=2)
        unit = UnitKey("int2-g32", *first.case)
        labels.set_label(store, run_id, unit, "regression", name="Bo <b>", note="![x](http://evil)")
        said = Said(
            action="approve", name="Ada <img>", reason="the customer accepts this loss",
            expires_at=ends, overrules="exact_match [pooled]",
        )  # fmt: skip
        decisions.append(store, run_id, "int2-g32", said, decisions.Seen(stored.sha256))
    report = load_report(url)
    page = Page(rendered(report, "html"))
    text = "".join(page.text)
    for shown in (text, rendered(report, "markdown").replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")):
        assert "approve by Ada <img> (unauthenticated) on 20" in shown
        line = f"overrules exact_match [pooled], holds until {ends[:10]}: the customer accepts this loss"
        assert line in shown
        assert "about an earlier verdict" not in shown
    assert text.count("labelled regression by Bo <b> on 20") == 1
    assert text.index(first.name) < text.index("labelled regression") < text.index(second.name)
    assert not {tag for tag, _ in page.tags} - OURS
    again = Verdict(variant="int2-g32", word="block", exit=10, reasons=("again",))
    with open_store(url) as store:
        runs.add_verdicts(store, run_id, [again], runs.policy(store, run_id))
    assert "about an earlier verdict" in "".join(Page(rendered(load_report(url), "html")).text)
