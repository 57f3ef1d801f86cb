"""Every proof or a slice of it, one after the other, each named with its rows, its seconds and what came of it.

python -m tests.verification [--list] [--quick] [PROOF or ROW ...]      exit 1: a goal is not met, or a proof crashed
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.verification import PROOFS, run_of
from tests.verification.references import folders, scoring
from tests.verification.served import served
from tests.verification.service import service
from tests.verification.verdicts import decisions

WHOLE = {  # rows that are measured to the end: under a minute of one core
    "fail_closed.cases", "fail_closed.mutations", "fail_closed.score_files",
    "attacks.new", "attacks.legitimate", "defects.false_approve", "defects.false_block",
    "bfcl_mutations", "bfcl_fuzz", "tokens", "let_through",
    "reasoning", "choice", "contains", "readings", "dialects", "folders.edited",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Rows of a proof that are measured together."""

    proof: str
    rows: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return WHOLE.issuperset(self.rows)

    def __str__(self) -> str:
        return f"{self.proof}: {', '.join(self.rows)}"

    def measured(self, quick: bool = False) -> list[dict[str, Any]]:
        """The rows as the benchmark tells them, the quick one unless they are measured whole. quick: those too."""
        run, few = run_of(self.proof), quick or not self.whole
        result = run(few, self.rows) if PROOFS[self.proof].in_parts else run(few)
        return [row for row in result["goals"] if row["id"] in self.rows]


def slices() -> Iterator[Slice]:
    """Of every proof, the short ones first."""
    alone = (
        "architectures",
        "determinism-report",
        "static",
        "served-arithmetic",
        "exact",
        "first-hour",
        "combinations",
        "lossless",
        "quantize",
    )
    for name in alone:
        yield Slice(proof=name, rows=tuple(PROOFS[name].goals))
    for rows in (part.ids for part in decisions.PARTS):
        yield Slice(proof="decisions", rows=rows)
    for _, rows in scoring.PARTS:
        yield Slice(proof="scoring", rows=rows)
    for _, rows in folders.PARTS:
        yield Slice(proof="folders", rows=rows)
    for _, rows in service.PARTS:
        yield Slice(proof="service", rows=rows)
    for _, rows in served.PARTS:
        yield Slice(proof="served", rows=rows)


def chosen(names: Sequence[str]) -> list[Slice]:
    """The slices of these proofs and rows; all of them where none is named."""
    found = list(slices())
    for name in names:
        if not any(name == one.proof or name in one.rows for one in found):
            print(f"no proof or row {name!r}; there are (--list):", file=sys.stderr)
            print(*(described(one) for one in found), sep="\n", file=sys.stderr)
            raise SystemExit(64)
    return [one for one in found if not names or {one.proof, *one.rows} & {*names}]


def described(one: Slice) -> str:
    return f"{one}{', whole' if one.whole else ''}"


def hold(one: Slice, quick: bool = False) -> bool:
    """Measure the slice and say what came of it, a line for each row; whether no goal is missed."""
    start = time.monotonic()
    try:
        rows = one.measured(quick)
    except Exception:
        print(_headed("CRASHED", one, start), traceback.format_exc(), sep="\n", flush=True)
        return False
    missed = [row for row in rows if row["met"] is False]
    lines = [_headed("MISSED" if missed else "ok", one, start)]
    lines += [f"         {row['id']}: {_outcome(row)}" for row in rows]
    print("\n".join(lines), flush=True)  # at once: slices run side by side
    return not missed


def _outcome(row: dict[str, Any]) -> str:
    """What is known of the row's goal."""
    if row["met"]:
        return "met"
    if row["met"] is False:
        return f"not met: {row['goal']}; measured: {row['measured']}"
    if "too_few_draws" not in row:
        return f"no verdict: {row['reason']}"
    so_far = {True: "holds so far; ", False: f"does not hold so far, measured: {row['measured']}; ", None: ""}
    return so_far[row["so_far"]] + row["reason"]


def _headed(word: str, one: Slice, start: float) -> str:
    return f"{word:<8} {described(one)}  ({time.monotonic() - start:.0f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verification", description="Every proof or a slice of it.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a proof or a row; all by default")
    parser.add_argument("--list", action="store_true", help="name what is covered, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="slices of those too that are measured whole")
    asked = parser.parse_args(arguments)
    covered = chosen(asked.names)
    if asked.list:
        print(*map(described, covered), sep="\n")
        return 0
    held = [hold(one, asked.quick) for one in covered]
    print(f"{sum(held)} of {len(held)} proofs hold, whole or on their slices", flush=True)
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
