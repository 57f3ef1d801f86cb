"""The runs of a store on a terminal, newest first, with what became of each variant; and its loads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.identity import sha256_text
from qualgate.report import screen
from qualgate.report.load_tables import causes_line, levels_line
from qualgate.report.screen import indented
from qualgate.report.terminal import STYLE
from qualgate.store.loads import StoredLoad
from qualgate.store.queries import RunLine, VariantLine

STATES = {"running": "under way, or interrupted", "incomplete": "incomplete: run it again to resume"}


def print_runs(found: Sequence[RunLine], total: int) -> None:
    """One line a run, one below it for each variant; colours only on a terminal."""
    console = screen.console()
    for line in found:
        console.print(Text.assemble((visible_line(line.run_id), "bold"), f"  {_when(line.created_at)}  {_state(line)}"))
        if line.variants:
            console.print(indented(Text(_about(line.variants[0]), style="dim")))
        width = max((len(visible_line(one.variant)) for one in line.variants), default=0)
        for one in line.variants:
            console.print(indented(_variant(one, width)))
    if total > len(found):
        console.print(Text(f"{counted(total - len(found), 'older run')}: --limit {total} shows all", style="dim"))


def print_loads(found: Sequence[StoredLoad], total: int) -> None:
    """One line a load, one below it for each variant with why its word is no approval."""
    console = screen.console()
    for one in found:
        load = one.body["load"]
        about = f"{one.gate_name}, {levels_line(one.body)}, {counted(load['rounds'], 'round')}, ended with {one.exit}"
        console.print(Text.assemble((one.load_id, "bold"), f"  {_when(one.created_at)}  {visible_line(about)}"))
        for verdict in one.body["verdicts"]:
            word = verdict["verdict"]
            said = (f"{visible_line(verdict['variant'])}  ", "bold"), (f"{word.upper()} ", STYLE.get(word, "dim"))
            why = f": {causes}" if (causes := causes_line(verdict)) else ""
            console.print(indented(Text.assemble(*said, visible_line(f"under load{why}"))))
    if total > len(found):
        console.print(Text(f"{counted(total - len(found), 'older load')}: --limit {total} shows all", style="dim"))


def load_as_body(one: StoredLoad) -> dict[str, Any]:
    """As JSON. `result`: as load.json has it."""
    return {
        "load": one.load_id,
        "created_at": one.created_at,
        "gate": one.gate_name,
        "gate_sha256": sha256_text(one.gate_file),
        "policy_sha256": one.policy_sha256,
        "exit": one.exit,
        "result": one.body,
    }


def _state(line: RunLine) -> str:
    said = ["trial"] if line.trial else []
    said += [STATES[line.status]] if line.status in STATES else []
    said.append(f"{line.done:,} of {counted(line.expected, 'answer')}")
    said += [f"{line.errors:,} could not be run"] if line.errors else []
    said += [f"{line.settled:,} not asked, a verdict was settled"] if line.settled else []
    said += [f"scored again on {line.scored_again[:10]}"] if line.scored_again else []
    said += [line.pruned] if line.pruned else []
    return ", ".join(said)


def _variant(one: VariantLine, width: int) -> Text:
    word = one.word or "no verdict"
    decided = f"  ({visible_line(one.action)} by {visible_line(one.name or '')})" if one.action else ""
    if not decided and one.superseded_by:
        decided = f"  (superseded by {visible_line(one.superseded_by)})"
    return Text.assemble(
        (f"{visible_line(one.variant):<{width}}  ", "bold"),
        (f"{visible_line(word).upper():<9} ", STYLE.get(word, "dim")),
        f"{visible_line(one.reason)}{decided}".rstrip(),
    )


def _about(one: VariantLine) -> str:
    return visible_line(str(one.called))


def _when(stamp: str) -> str:
    return f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"
