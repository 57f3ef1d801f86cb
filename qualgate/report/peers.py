"""Results of other tools' rules beside our verdict: on a terminal, and as a part of the JSON report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from qualgate.report import screen
from qualgate.report.blocks import Cell, Lines, Note, Section, Table
from qualgate.report.terminal_blocks import print_sections
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.gate.peers.nel_policy import NelSaid
    from qualgate.gate.peers.passed_loss import PassedLoss
    from qualgate.gate.peers.said import PeerSaid
    from qualgate.records import Verdict


def print_peers(answers: Sequence[PeerSaid], nel: Sequence[NelSaid], verdicts: Sequence[Verdict]) -> None:
    """Print one table per variant to stdout, then an nel policy's decision with every difference."""
    words = {verdict.variant: verdict.word for verdict in verdicts}
    sections = [
        Section(
            f"what each would have said of {variant}; qualgate says",
            (_table(list(lines)),),
            word=words.get(variant, "no verdict"),
        )
        for variant, lines in groupby(answers, key=lambda line: line.variant)
    ]
    print_sections(screen.console(), [*sections, *map(_nel, nel)])


def _nel(decision: NelSaid) -> Section:
    return Section(
        f"by its own rules, nel would say {decision.says} of {decision.variant}: {decision.why}",
        (
            *(
                Note(f"{line.benchmark} [{line.tier}] {line.status}: {line.why}", kind="quiet")
                for line in decision.benchmarks
            ),
            Lines(tuple(f"differs: {difference}" for difference in decision.differences)),
        ),
    )


def _table(lines: Sequence[PeerSaid]) -> Table:
    """Return what other projects' rules say of each metric on each evalset."""
    rows = tuple(
        (
            line.verdict.name,
            f"{line.metric} [{line.evalset}]",
            counted(line.n, "pair"),
            Cell(line.verdict.says, "status"),
            line.verdict.why,
            _passes(line.passes),
        )
        for line in lines
    )
    return Table(heads=("rule", "metric", "of", "says", "why", "lets pass: half the time / 1 in 10"), rows=rows)


def _passes(passes: PassedLoss | None) -> str:
    """Which loss the rule lets pass on this evidence, in points."""
    if passes is None:
        return "–"
    if passes.half < 0:
        return "not even an equal variant"
    return f"a loss of {passes.half * 100:.1f} / {passes.tenth * 100:.1f} points"


def with_peers(report: str, answers: Sequence[PeerSaid] | None, nel: Sequence[NelSaid]) -> str:
    """Return the JSON report with `peers` (None: not requested) and, if an nel policy decided, `nel`."""
    plain = json.loads(report)
    if answers is not None:
        plain["peers"] = [asdict(line) for line in answers]
    if nel:
        plain["nel"] = [asdict(decision) for decision in nel]
    return json.dumps(plain, indent=2, ensure_ascii=True, allow_nan=False)
