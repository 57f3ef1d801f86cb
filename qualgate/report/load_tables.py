"""Tables and a picture of a stored load, shared by the terminal, files and the dashboard.

Cells hold stored text as it is: the caller makes it visible and escapes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualgate.formatting import counted
from qualgate.report.plots import Picture
from qualgate.report.plots.load import Panel, Point, throughput_and_latency

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "gap": "gap", "e2e": "end to end"}
DRAWN = ("ttft", "tpot", "e2e")
READING = (
    "In brackets: 95 % intervals of order statistics, as if answers were independent. Under load they hang together, "
    "so these are the least that is not known; how far rounds lie apart says more."
)
BY_ROUND = "By round: the least and the largest 95th percentile of one."
CAPTION = "Latency by throughput, level by level; bars are 95 % intervals, dotted where no end is known"
WORDS = ("level", "arm", "time, ms", "rule", "verdict", "why")  # columns that are no numbers
CAUSES_SHOWN = 3  # of one variant

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Column heads, and rows with a cell for each."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Indices of the columns aligned right."""
        return tuple(index for index, head in enumerate(self.heads) if head not in WORDS)


def measured_line(body: Body) -> str:
    """Return the number of rounds and prompts, the seed, and whose definitions were used."""
    whose = "" if body["definitions"] == "qualgate" else f", by the definitions of {body['definitions']}"
    rounds = counted(body["load"]["rounds"], "round")
    return f"{rounds}, {counted(body['prompts'], 'prompt')}, seed {body['seed']}{whose}"


def levels_line(body: Body) -> str:
    """Return the load levels: "4 at once, 8/s"."""
    return ", ".join(dict.fromkeys(row["label"] for row in body["rows"]))


def throughput_table(body: Body) -> Table:
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
    )


def times_table(body: Body) -> Table:
    """Return the percentiles of answer times at each level, a row for each time and arm."""
    rows = []
    for label in dict.fromkeys(row["label"] for row in body["rows"]):
        for name, title in NAMES.items():
            for row in (row for row in body["rows"] if row["label"] == label):
                if percentiles := row["times"][name]:
                    by_round = [value for value in percentiles["p95"]["rounds"] if value is not None]
                    cells = (_percentile(percentiles[p]) for p in ("p50", "p95", "p99"))
                    rows.append((label, title, row["arm"], *cells, _range(by_round, _ms)))
    return Table(heads=("level", "time, ms", "arm", "p50", "p95", "p99", "p95 by round"), rows=tuple(rows))


def rules_table(verdict: Body) -> Table:
    """Return the result of each rule on a variant at each level."""
    rows = []
    for finding in verdict["findings"]:
        ranges = (
            _range([value for value in values if value is not None], lambda value: f"{value:.3g}")
            for values in (finding["rounds"], finding["baseline"])
        )
        why = finding["because"] or f"{_within(finding)} (p = {finding['p']:.2g})"
        rows.append((finding["verdict"], finding["level"], finding["rule"], *ranges, why))
    return Table(heads=("verdict", "level", "rule", "by round", "baseline's", "why"), rows=tuple(rows))


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
