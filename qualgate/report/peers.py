"""Results of other tools' rules beside our verdict: a table for a terminal, a part of the JSON report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.report import screen
from qualgate.report.screen import fit
from qualgate.report.terminal_blocks import STYLE

if TYPE_CHECKING:
    from qualgate.gate.peers.nel_policy import NelSaid
    from qualgate.gate.peers.said import PeerSaid
    from qualgate.records import Verdict

SAYS = {"pass": "green", "fail": "red", "cannot": "cyan"}


def print_peers(answers: Sequence[PeerSaid], nel: Sequence[NelSaid], verdicts: Sequence[Verdict]) -> None:
    """Print one table per variant to stdout, then an nel policy's decision with every difference."""
    console = screen.console()
    words = {verdict.variant: verdict.word for verdict in verdicts}
    for variant, lines in groupby(answers, key=lambda line: line.variant):
        word = words.get(variant, "no verdict")
        console.print(
            Text.assemble(
                "what each would have said of ", (visible_line(variant), "bold"), "; qualgate says ",
                (word, STYLE.get(word, "bold")),
            )
        )  # fmt: skip
        console.print(_table(list(lines)))
        console.print()
    for decision in nel:
        message = f"by its own rules, nel would say {decision.says} of {decision.variant}: {decision.why}"
        console.print(Text(fit(visible_line(message))))
        for line in decision.benchmarks:
            console.print(
                Text(
                    fit(f"  {visible_line(line.benchmark)} [{line.tier}] {line.status}: {visible_line(line.why)}"),
                    style="dim",
                )
            )
        for difference in decision.differences:
            console.print(Text(fit(f"  • differs: {visible_line(difference)}")))
        console.print()


def _table(lines: Sequence[PeerSaid]) -> Table:
    """Return a table of what other projects' rules say; lines on the same metric and evalset share one head."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("  metric", "rule", "says", "why"):
        table.add_column(name)
    last_head = ""
    for line in lines:
        head = f"  {visible_line(line.metric)} [{visible_line(line.evalset)}], {counted(line.n, 'pair')}"
        table.add_row(
            Text("" if head == last_head else head),
            Text(visible_line(line.verdict.name)),
            Text(line.verdict.says, style=SAYS.get(line.verdict.says, "")),
            Text(visible_line(line.verdict.why)),
        )
        last_head = head
    return table


def with_peers(report: str, answers: Sequence[PeerSaid] | None, nel: Sequence[NelSaid]) -> str:
    """Return the JSON report with `peers` (None: not requested) and, if an nel policy decided, `nel`."""
    plain = json.loads(report)
    if answers is not None:
        plain["peers"] = [asdict(line) for line in answers]
    if nel:
        plain["nel"] = [asdict(decision) for decision in nel]
    return json.dumps(plain, indent=2, ensure_ascii=True, allow_nan=False)
