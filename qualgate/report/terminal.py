"""Print a report on a terminal: what was judged, then each variant's verdict, reasons and measurements."""

from __future__ import annotations

from rich.text import Text

from qualgate.report import screen
from qualgate.report.blocks import Lines
from qualgate.report.flip_list import print_flips
from qualgate.report.four_arms import choice_section
from qualgate.report.screen import fit
from qualgate.report.sections import setting_sections, variant_sections
from qualgate.report.summary import Report
from qualgate.report.terminal_blocks import STYLE, print_blocks, print_sections
from qualgate.text.escaping import visible_line

EXAMPLES = 3  # flipped answers shown with a first look


def print_report(report: Report) -> None:
    """Print the report to stdout, with colours only on a terminal."""
    console = screen.console()
    for remark in report.remarks:
        console.print(Text(fit(f"{remark}\n"), style="yellow"))
    console.print(Text(f"run {visible_line(report.run.run_id)}", style="bold"))
    print_sections(console, setting_sections(report))
    if not report.verdicts:
        console.print(
            Text(
                "\nThis run is not complete, so nothing is decided yet: run the same command again to resume it, or "
                "name an earlier run with --run.",
                style="yellow",
            )
        )
    if report.four_arm is not None:
        console.print()
        print_sections(console, [choice_section(report.four_arm)])
    for stored in report.run.verdicts:
        verdict = stored.verdict
        console.print()
        console.print(
            Text.assemble(
                (visible_line(verdict.variant), "bold"), "  ", (verdict.word, STYLE.get(verdict.word, "bold"))
            )
        )
        print_blocks(console, [Lines(verdict.reasons)], 2)
        print_sections(console, variant_sections(report, stored), 2)
        _print_examples(report, verdict.variant)
    console.print()


def _print_examples(report: Report, variant: str) -> None:
    """Print the first flipped answers of a first look; `qualgate flips` shows all."""
    if report.first_look and (flips := report.flips.get(variant, ())):
        counts = report.flip_counts[variant]
        lost, pairs = sum(count.lost for count in counts), sum(count.pairs for count in counts)
        print_flips(variant, flips[:EXAMPLES], lost, pairs, "lost")
