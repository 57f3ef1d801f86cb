"""Print the runs of a store on a terminal, newest first, with each variant's verdict; and its loads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from qualgate.records.identity import sha256_text
from qualgate.report import screen
from qualgate.report.load_sections import causes_line, levels_line
from qualgate.report.screen import indented
from qualgate.report.terminal_blocks import STYLE
from qualgate.store.loads import StoredLoad
from qualgate.store.queries import RunLine, VariantLine
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

STATES = {"running": "under way, or interrupted", "incomplete": "incomplete: run it again to resume"}


def print_runs(runs: Sequence[RunLine], total: int) -> None:
    """Print one line per run, and one below it per variant; colours only on a terminal."""
    console = screen.console()
    for line in runs:
        console.print(
            Text.assemble((visible_line(line.run_id), "bold"), f"  {_when(line.created_at)}  {run_state(line)}")
        )
        if line.variants:
            console.print(indented(Text(_about(line.variants[0]), style="dim")))
        width = max((len(visible_line(variant.variant)) for variant in line.variants), default=0)
        for variant in line.variants:
            console.print(indented(_variant(variant, width)))
    if total > len(runs):
        console.print(Text(f"{counted(total - len(runs), 'older run')}: --limit {total} shows all", style="dim"))


def print_loads(loads: Sequence[StoredLoad], total: int) -> None:
    """Print one line per load, and one below it per variant with why it is not approved."""
    console = screen.console()
    for stored in loads:
        rounds = counted(stored.body["load"]["rounds"], "round")
        about = f"{stored.gate_name}, {levels_line(stored.body)}, {rounds}, ended with {stored.exit}"
        console.print(Text.assemble((stored.load_id, "bold"), f"  {_when(stored.created_at)}  {visible_line(about)}"))
        for verdict in stored.body["verdicts"]:
            word = verdict["verdict"]
            heading = (f"{visible_line(verdict['variant'])}  ", "bold"), (f"{word.upper()} ", STYLE.get(word, "dim"))
            why = f": {causes}" if (causes := causes_line(verdict)) else ""
            console.print(indented(Text.assemble(*heading, visible_line(f"under load{why}"))))
    if total > len(loads):
        console.print(Text(f"{counted(total - len(loads), 'older load')}: --limit {total} shows all", style="dim"))


def load_as_body(stored: StoredLoad) -> dict[str, Any]:
    """Return a load as JSON values; `result` is the content of load.json."""
    return {
        "load": stored.load_id,
        "created_at": stored.created_at,
        "gate": stored.gate_name,
        "gate_sha256": sha256_text(stored.gate_file),
        "policy_sha256": stored.policy_sha256,
        "exit": stored.exit,
        "result": stored.body,
    }


def run_state(line: RunLine) -> str:
    """Return the state of a run in words: trial, status, answers, errors, units saved by early stopping, rescoring,
    pruning."""
    parts = ["trial"] if line.trial else []
    parts += [STATES[line.status]] if line.status in STATES else []
    parts.append(f"{line.done:,} of {counted(line.expected, 'answer')}")
    parts += [f"{line.errors:,} could not be run"] if line.errors else []
    parts += [f"{line.settled:,} not asked, a verdict was settled"] if line.settled else []
    parts += [f"scored again on {line.scored_again[:10]}"] if line.scored_again else []
    parts += [line.pruned] if line.pruned else []
    return ", ".join(parts)


def _variant(variant: VariantLine, width: int) -> Text:
    """Return a variant's line: verdict, reason, and who decided otherwise or what superseded it. width: of the longest
    name."""
    word = variant.word or "no verdict"
    decided = f"  ({visible_line(variant.action)} by {visible_line(variant.name or '')})" if variant.action else ""
    if not decided and variant.superseded_by:
        decided = f"  (superseded by {visible_line(variant.superseded_by)})"
    return Text.assemble(
        (f"{visible_line(variant.variant):<{width}}  ", "bold"),
        (f"{visible_line(word).upper():<9} ", STYLE.get(word, "dim")),
        f"{visible_line(variant.reason)}{decided}".rstrip(),
    )


def _about(variant: VariantLine) -> str:
    return visible_line(str(variant.called))


def _when(stamp: str) -> str:
    return f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"
