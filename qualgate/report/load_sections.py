"""A stored load: each rule's result, throughput and latency, and the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from qualgate.report.blocks import Cell, Figure, Lines, Note, Section, Table, Terms
from qualgate.report.plots import Picture
from qualgate.report.plots.load import Panel, Point, throughput_and_latency
from qualgate.text.numbers import counted

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "gap": "gap", "e2e": "end to end"}
DRAWN = ("ttft", "tpot", "e2e")
READING = (
    "In brackets: 95 % intervals of order statistics, as if answers were independent. Under load they hang together, "
    "so these are the least that is not known; how far rounds lie apart says more."
)
BY_ROUND = "By round: the least and the largest 95th percentile of one."
CAPTION = "Latency by throughput, level by level; bars are 95 % intervals, dotted where no end is known"
CAUSES_SHOWN = 3  # of one variant

Body = Mapping[str, Any]


def rules_sections(body: Body) -> list[Section]:
    """Return each variant's verdict and the result of each rule at each level."""
    return [
        Section(f"{verdict['variant']} under load", (_rules(verdict),), word=verdict["verdict"])
        for verdict in body["verdicts"]
    ]


def measured_section(body: Body) -> Section:
    """Return throughput and answer times at each level, as a picture and as tables, and how to read them."""
    by_round = (Note(BY_ROUND, kind="quiet"),) if body["load"]["rounds"] > 1 else ()
    return Section(
        "Throughput and latency",
        (
            Figure(picture=load_picture(body), caption=CAPTION),
            _throughput(body),
            _times(body),
            Note(READING, kind="quiet"),
            *by_round,
            Lines(tuple(body["notes"])),
        ),
    )


def servers_section(body: Body) -> Section:
    """Return what each server declares."""
    return Section("Servers", (Terms(rows=tuple(body["declared"].items())),))


def measured_line(body: Body) -> str:
    """Return the number of rounds and prompts, the seed, and whose definitions were used."""
    whose = "" if body["definitions"] == "qualgate" else f", by the definitions of {body['definitions']}"
    rounds = counted(body["load"]["rounds"], "round")
    return f"{rounds}, {counted(body['prompts'], 'prompt')}, seed {body['seed']}{whose}"


def levels_line(body: Body) -> str:
    """Return the load levels: "4 at once, 8/s"."""
    return ", ".join(dict.fromkeys(row["label"] for row in body["rows"]))


def _throughput(body: Body) -> Table:
    """Return each arm's throughput at each level."""
    limited = body["slo"] is not None
    heads = ("level", "arm", "requests", "failed", "answers/s", "by round", "tokens/s")
    return Table(
        heads=(*heads, "within limits", "good/s") if limited else heads,
        rows=tuple(
            (
                row["label"],
                row["arm"],
                f"{row['requests']:,}",
                f"{sum(row['failed'].values()):,}",
                f"{row['throughput']:.3g}",
                _range(row["throughputs"], lambda value: f"{value:.3g}"),
                "–" if row["tokens"] is None else f"{row['tokens']:.4g}",
                *((_good(row), "–" if row["goodput"] is None else f"{row['goodput']:.3g}") if limited else ()),
            )
            for row in body["rows"]
        ),
        numbers=range(2, 9),
        spare=(5,),
    )


def _times(body: Body) -> Table:
    """Return the percentiles of answer times at each level, a row for each time and arm."""
    rows = []
    for label in dict.fromkeys(row["label"] for row in body["rows"]):
        for name, title in NAMES.items():
            for row in (row for row in body["rows"] if row["label"] == label):
                if percentiles := row["times"][name]:
                    by_round = [value for value in percentiles["p95"]["rounds"] if value is not None]
                    cells = (_percentile(percentiles[p]) for p in ("p50", "p95", "p99"))
                    rows.append((label, title, row["arm"], *cells, _range(by_round, _ms)))
    heads = ("level", "time, ms", "arm", "p50", "p95", "p99", "p95 by round")
    return Table(heads=heads, rows=tuple(rows), numbers=range(3, 7))


def _rules(verdict: Body) -> Table:
    """Return the result of each rule on a variant at each level."""
    rows = []
    for finding in verdict["findings"]:
        ranges = (
            _range([value for value in values if value is not None], lambda value: f"{value:.3g}")
            for values in (finding["rounds"], finding["baseline"])
        )
        why = finding["because"] or f"{_within(finding)} (p = {finding['p']:.2g})"
        rows.append((finding["rule"], finding["level"], *ranges, Cell(finding["verdict"], "status"), why))
    heads = ("rule", "level", "by round", "baseline's", "verdict", "why")
    return Table(heads=heads, rows=tuple(rows), numbers=(2, 3))


def causes_line(verdict: Body) -> str:
    """Return why the verdict is no approval; "" if it is one."""
    if verdict["verdict"] == "approve":
        return ""
    causes = [
        f"{finding['rule']} at {finding['level']}: {finding['because'] or _within(finding)}"
        for finding in verdict["findings"]
        if finding["verdict"] == verdict["verdict"]
    ]
    more = [f"and {len(causes) - CAUSES_SHOWN} more"] if len(causes) > CAUSES_SHOWN else []
    return "; ".join([*causes[:CAUSES_SHOWN], *more])


def _within(finding: Body) -> str:
    return f"{finding['within']} of {len(finding['rounds'])} rounds are within it"


def _good(row: Body) -> str:
    if row["good"] is None:
        return "–"
    share, low, high = (100 * row["good"][name] for name in ("share", "low", "high"))
    return f"{share:.1f} % [{low:.1f}, {high:.1f}]"


def _percentile(percentile: Body) -> str:
    low, high = ("…" if bound is None else _ms(bound) for bound in (percentile["low"], percentile["high"]))
    return f"{_ms(percentile['value'])} [{low}, {high}]"


def _ms(seconds: float) -> str:
    """Return milliseconds with three significant digits: 0.213, 12.3, 1,204."""
    milliseconds = 1000 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _range(values: Sequence[float], text_of: Callable[[float], str]) -> str:
    if len(values) < 2:
        return ""
    low, high = text_of(min(values)), text_of(max(values))
    return low if low == high else f"{low} … {high}"


def load_picture(body: Body) -> Picture:
    """Draw throughput against the 95th percentile of TTFT, TPOT and end to end."""
    by_tokens = all(row["tokens"] is not None for row in body["rows"])
    limits, panels = body["slo"] or {}, []
    for name in DRAWN:
        points: dict[str, list[Point]] = {}
        for arm, point in _points(body, name, "tokens" if by_tokens else "throughput"):
            points.setdefault(arm, []).append(point)
        limit = limits.get(name)
        if points:
            title = f"{NAMES[name]}, 95th percentile, ms"
            panels.append(Panel(title=title, points=points, limit=None if limit is None else 1000 * limit))
    return throughput_and_latency(panels, "output tokens a second" if by_tokens else "answers a second", CAPTION)


def _points(body: Body, name: str, across: str) -> Iterator[tuple[str, Point]]:
    for row in body["rows"]:
        if p95 := row["times"][name].get("p95"):
            low, high = (None if p95[end] is None else 1000 * p95[end] for end in ("low", "high"))
            kind, x, y = row["level"]["kind"], row[across], 1000 * p95["value"]
            yield row["arm"], Point(label=row["label"], kind=kind, x=x, y=y, low=low, high=high)
