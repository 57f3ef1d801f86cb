"""Row `early.decodes`: of a run's answers that had to be decoded, how many does `stop: early` leave undone?

A variant reads the baseline's answers; only where it would say another token does it decode. The shipped sets are run
twice, each time in a store of its own: to the end, and with `stop: early`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from qualgate import load_gate_file, run_gate
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import Rounds

GATE_FILE = Path(__file__).parents[3] / "qualgate" / "refmodel" / "demo.yaml"  # the shipped sets, four variants
SAVED = 0.5
EARLY = ("  alpha: 0.05\n", "  alpha: 0.05\n  stop: early\n")
QUICK = (
    ("[arithmetic, json_extract, tool_calls, code, transform, reformat, grounded_qa]", "[json_extract]"),
    ("    - {metric: tool_call.valid, evalset: tool_calls, max_drop: 0.05}\n", ""),
    ("  int4-g32:  {quantize: {method: int4, group_size: 32}}\n  mxfp4:     {quantize: mxfp4}\n", ""),
)


def measure(quick: bool) -> tuple[Rounds, Rounds]:
    """Of a variant that is broken almost every answer is to be decoded, so the others are counted apart as well."""
    whole, early = (_ran(QUICK * quick + stop) for stop in ((), (EARLY,)))
    rounds = [
        {"variant": name, "word": early[name][0], "fixed_word": word, "diverged": count, "decoded": early[name][1]}
        for name, (word, count) in whole.items()
    ]
    gross = max(rounds, key=lambda one: one["diverged"])
    others = [one for one in rounds if one is not gross]
    measured = {
        "diverged": sum(one["diverged"] for one in rounds), "decoded": sum(one["decoded"] for one in rounds),
        "saved": _saved(rounds), "saved_without_the_worst": _saved(others),
    }  # fmt: skip
    same = all(one["word"] == one["fixed_word"] for one in rounds)
    spread = [f([_saved([one]) for one in rounds]) for f in (min, max)]
    met = same and measured["saved"] >= SAVED
    few = "one set of seven, two variants of four" if quick else None
    return rounds, [DECISIONS.row("early.decodes", measured, spread=spread, met=met, few=few)]


def _saved(rounds: Rounds) -> float:
    return 1 - sum(one["decoded"] for one in rounds) / max(1, sum(one["diverged"] for one in rounds))


def _ran(changes: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, int]]:
    """Variant → its word, and how many of its answers were decoded."""
    text = GATE_FILE.read_text()
    for old, new in changes:
        assert old in text, "the demo's gate file is another"
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gate.yaml"
        path.write_text(text)
        gate = load_gate_file(path)
        outcome = run_gate(gate)
        with open_store(gate.store_url) as store:
            arms = {arm.name: arm for arm in runs.evidence(store, outcome.run_id).variants}
    return {
        one.variant: (one.word, sum(unit.first_divergence is not None for unit in arms[one.variant].units))
        for one in outcome.verdicts
    }
