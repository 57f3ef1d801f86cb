"""Print a report on a terminal: one table per variant, its reasons, its drift."""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import difference_and_bounds, drift_texts, flips_text, stop_texts, value_text
from qualgate.records import Comparison, Verdict
from qualgate.report import readings, screen, trajectories
from qualgate.report.arms import arm_lines, size_cells, weights_and_cache_lines
from qualgate.report.flip_list import print_flips
from qualgate.report.screen import fit, indented
from qualgate.report.speculation import speculation_lines
from qualgate.report.summary import Report

STYLE = {
    "approve": "bold green",
    "block": "bold red",
    "review": "bold yellow",
    "undecided": "bold cyan",
    "invalid": "bold magenta",
    "proven": "green",
    "broken": "red",
}
EXAMPLES = 3  # flipped answers shown with a first look
WIDE = 135  # columns for the table of comparisons; on narrower screens each comparison has lines of its own


def print_report(report: Report) -> None:
    """Print the report to stdout, with colours only on a terminal."""
    console = screen.console()
    for remark in report.remarks:
        console.print(Text(fit(f"{remark}\n"), style="yellow"))
    console.print(_arms(report, wide=console.width >= WIDE))
    for line in report.of_arms:
        console.print(Text(fit(line), style="dim"))
    if not report.verdicts:
        console.print(
            Text(
                "\nThis run is not complete, so nothing is decided yet: run the same command again to resume it, or "
                "name an earlier run with --run.",
                style="yellow",
            )
        )
    for verdict in report.verdicts:
        console.print()
        console.print(
            Text.assemble(
                (visible_line(verdict.variant), "bold"), "  ", (verdict.word, STYLE.get(verdict.word, "bold"))
            )
        )
        if console.width >= WIDE and verdict.comparisons:
            console.print(_comparisons(verdict.comparisons))
        else:
            for comparison in verdict.comparisons:
                console.print(_stacked(comparison))
        for reason in verdict.reasons:
            console.print(Text(fit(f"  • {visible_line(reason)}")))
        _print_examples(report, verdict.variant)
        _print_more(console, report, verdict)
    console.print()


def _print_more(console: Console, report: Report, verdict: Verdict) -> None:
    """Print what was measured besides the rules, such as drift, ends of answers, tool calls and speculation."""
    if verdict.drift:
        console.print(Text(fit("  drift: " + "; ".join(drift_texts(verdict.drift))), style="dim"))
    if verdict.stop_reasons:
        console.print(Text(fit("  ended by: " + "; ".join(stop_texts(verdict.stop_reasons))), style="dim"))
    for line in arm_lines(verdict):
        console.print(Text(fit(f"  {line}")))
    reading_lines = readings.lines(report.readings.get(verdict.variant, ()))
    for line in (*trajectories.lines(report.trajectories.get(verdict.variant, ())), *reading_lines):
        console.print(Text(fit(f"  {visible_line(line)}")))
    if verdict.weights_and_cache is not None:
        console.print(Text("  weights and cache"))
        for line in weights_and_cache_lines(verdict.weights_and_cache):
            console.print(Text(fit(f"    {line}")))
    if verdict.speculated is not None:
        console.print(Text("  speculation"))
        for line in speculation_lines(verdict.speculated):
            console.print(Text(fit(f"    {line}")))


def _print_examples(report: Report, variant: str) -> None:
    """Print the first flipped answers of a first look; `qualgate flips` shows all."""
    if report.first_look and (flips := report.flips.get(variant, ())):
        counts = report.flip_counts[variant]
        lost, pairs = sum(count.lost for count in counts), sum(count.pairs for count in counts)
        print_flips(variant, flips[:EXAMPLES], lost, pairs, "lost")


def _arms(report: Report, *, wide: bool) -> Table:
    """Return a table of the arms. wide: with their sizes."""
    table = Table(
        title=Text(f"run {visible_line(report.run.run_id)}"),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    sized = (("on disk", "right"), ("in memory", "right"), ("bits a weight", "right")) if wide else ()
    for name, justify in (("arm", "left"), ("weights", "left"), *sized, ("kernel", "left"), ("answers", "right"),
                          ("errors", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for arm in report.run.arms:
        names = Text(visible_line(arm.name)), Text(visible_line(arm.weights))  # Text: brackets are no markup
        kernel = Text(visible_line(", ".join(arm.kernels) or "–"))
        table.add_row(
            *names, *(size_cells(arm.sizes) if wide else ()), kernel, f"{arm.done} of {arm.expected}", str(arm.errors)
        )
    return table


def _stacked(c: Comparison) -> Group:
    """Lay out one comparison for a narrow terminal: the rule and its result, and the numbers below."""
    result, style = _result(c)
    numbers = [f"n {c.n}", f"{value_text(c.metric, c.baseline)} → {value_text(c.metric, c.variant)}"]
    numbers += [difference_and_bounds(c)] + ([f"lost/gained {flips}"] if (flips := flips_text(c)).strip("– ") else [])
    rule = visible_line(c.rule) + (f" ({visible_line(c.slice)})" if c.slice not in c.rule else "")
    figures = Text("   ".join(numbers), style="dim")
    return Group(indented(Text.assemble(rule, "  ", (result, style))), indented(figures, 6))


def _result(c: Comparison) -> tuple[str, str]:
    if c.tier == "critical":
        return c.status, STYLE.get(c.status, "cyan")
    return f"{c.status} ({c.tier})", "dim"


def _comparisons(comparisons) -> Table:
    """Return a table of the rules, one row for each rule and slice."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in (("  rule", "left"), ("slice", "left"), ("n", "right"), ("baseline", "right"),
                          ("variant", "right"), ("difference [bounds]", "right"), ("lost/gained", "right"),
                          ("result", "left")):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=name != "  rule")  # type: ignore[arg-type]
    for c in comparisons:
        table.add_row(
            Text(f"  {visible_line(c.rule)}"),
            Text(visible_line(c.slice)),
            str(c.n),
            value_text(c.metric, c.baseline),
            value_text(c.metric, c.variant),
            Text(difference_and_bounds(c)),
            flips_text(c),
            Text(*_result(c)),
        )
    return table
