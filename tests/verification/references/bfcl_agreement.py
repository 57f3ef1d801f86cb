"""`scoring.tools.compat` held against the rules written independently, on seeded mutations, and its speed."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from qualgate.scoring.tools.compat import check
from tests.verification.references.bfcl_calls import CATEGORIES, made_row, right_output
from tests.verification.references.bfcl_mutations import mutated
from tests.verification.references.bfcl_rules import Row, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    calls: int
    same: int
    differences: tuple[str, ...]  # the first few, one line each
    words: dict[str, int]  # how often each error type came up; "" for right
    checks_per_second: float  # of compat, on this core


def differential(calls: int, seed: int, rows: list[Row] | None = None) -> Agreement:
    """`calls` seeded mutations of `rows` (made ones by default), judged by compat and by the rules above."""
    rng = random.Random(seed)
    made = rows or [made_row(rng) for _ in range(1000)]
    same, differences, words, seconds = 0, [], {}, 0.0
    for _ in range(calls):
        chosen = rng.choice(made)
        row, output = mutated(rng, chosen, right_output(rng, chosen))
        if rng.random() < 0.05:
            row["category"] = rng.choice(("irrelevance", "live_relevance", *CATEGORIES))
        start = time.process_time()
        found = check(row["category"], row["language"], row["functions"], output, row["answers"])
        seconds += time.process_time() - start
        valid, word = verdict(row["category"], row["functions"], output, row["answers"])
        words[word] = words.get(word, 0) + 1
        raised = found.valid is None and found.error_type.startswith("reference_raises:")
        if (found.valid, "reference_raises" if raised else found.error_type) == (valid, word):
            same += 1
        elif len(differences) < 5:
            differences.append(f"compat {found}, rules {(valid, word)}: {row} {output!r}"[:2000])
    return Agreement(
        calls=calls,
        same=same,
        differences=tuple(differences),
        words=words,
        checks_per_second=calls / max(seconds, 1e-9),
    )


def simple_checks_per_second(seed: int, rounds: int = 20) -> tuple[float, float]:
    """Checks of one decoded call against one expected call: (right ones, mutated ones), best of `rounds`, one core."""
    rng = random.Random(seed)
    rows = [row for row in (made_row(rng) for _ in range(1000)) if "simple" in row["category"]][:200]
    right = [(row, right_output(rng, row)) for row in rows]
    best = []
    for pairs in (right, [mutated(rng, row, output) for row, output in right]):
        seconds = []
        for _ in range(rounds):
            start = time.process_time()
            for row, output in pairs:
                check("simple_python", "python", row["functions"], output, row["answers"])
            seconds.append(time.process_time() - start)
        best.append(len(pairs) / min(seconds))
    return best[0], best[1]
