"""What SGLang's parsers read of the strings beside this file, and what we say that its server executes, by dialect.

Where SGLang reads otherwise in pieces than whole, or otherwise than vLLM, that is counted, too: neither is ours to be
right about, for `served` says what the named server does with a finished answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.served import SERVERS, read_served
from tests.verification.references.agreement import SHOWN
from tests.verification.references.dialect_agreement import no_json, plain_calls, same_calls
from tests.verification.references.dialect_strings import TOOLS
from tests.verification.references.sglang_strings import ONE_LINE, PARSERS, Asked, asked

SGLANG = SERVERS["sglang"]


@dataclass(slots=True)
class Agreement:
    """Counts by dialect, and texts that are not read as SGLang reads them."""

    strings: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)  # read as the parser reads them
    called: Counter[str] = field(default_factory=Counter)  # in which it calls something
    as_vllm: Counter[str] = field(default_factory=Counter)  # of those that vLLM was asked, too
    unlike_vllm: Counter[str] = field(default_factory=Counter)
    in_pieces: Counter[str] = field(default_factory=Counter)  # read otherwise by itself
    unexplained: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return {*self.strings} >= {*SGLANG.parsers} - {"mistral"} and not self.unexplained

    def as_row(self) -> dict[str, Any]:
        counts = ("strings", "served", "called", "as_vllm", "unlike_vllm", "in_pieces")
        return {name: dict(getattr(self, name)) for name in counts} | {"unexplained": self.unexplained}


def compared(
    rows: Sequence[Asked],
    as_served: Callable[[str, str], Sequence[Call]] = lambda text, name: read_served(text, name, TOOLS, SGLANG),
) -> Agreement:
    """All rows. as_served: what reads a text in a dialect."""
    found = Agreement()
    for row in rows:
        name, theirs = row.one.dialect, row.whole if isinstance(row.whole, list) else []
        found.strings[name] += 1
        found.called[name] += bool(theirs)
        found.in_pieces[name] += not same_calls(theirs, row.pieces if isinstance(row.pieces, list) else [])
        if row.one.how != ONE_LINE:
            same = same_calls(theirs, row.vllm if isinstance(row.vllm, list) else [])
            (found.as_vllm if same else found.unlike_vllm)[name] += 1
        if name not in SGLANG.parsers:
            continue
        ours = plain_calls(lambda row=row: as_served(row.one.text, row.one.dialect))
        if ours is None if no_json(theirs) else same_calls(ours, theirs):
            found.served[name] += 1
        elif len(found.unexplained) < SHOWN:
            found.unexplained.append(f"{name}: theirs {theirs!r:.300}, ours {ours!r:.300}: {row.one.text!r:.600}")
    return found


def table(found: Agreement) -> list[str]:
    """In Markdown: a line a dialect."""
    lines = [
        "| dialect | SGLang's parser | strings | calls in | `served` as SGLang | not as vLLM | otherwise in pieces |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, count in found.strings.items():
        served = str(found.served[name]) if name in SGLANG.parsers else "-"
        cells = (
            f"`{name}`", f"`{PARSERS[name]}`", count, found.called[name], served, found.unlike_vllm[name],
            found.in_pieces[name],
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


if __name__ == "__main__":
    print(*table(compared(asked()[1])), sep="\n")
