"""Row `early.decodes`: of a stored run's answers that had to be decoded, how many `stop: early` would have left undone.

A variant reads the baseline's answers; only where it would say another token does it decode. The stored run decoded all
of those. It is replayed by its own policy with `stop: early`: an answer is decoded where it diverged and stands before
the look that settles its variant.

    python -m tests.verification.verdicts.early_decodes [--quick] [STORE]    the newest run of a store; else one is made

`least`: as few, in the seeded order, as settle the same look to the same word when each other is taken at its worst and
at its best: what is left to save by asking before each decode. `fixed`: the same of the fixed tests on all cases.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from qualgate.config import load_gate_file
from qualgate.gate.early import Order, Question, look, order_of, planned_looks
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.evidence import known
from qualgate.records import ArmEvidence, EarlyStop, Policy, RunEvidence, UnitEvidence
from qualgate.run import run_gate
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.verification.verdicts.row import Row

GATE_FILE = Path(__file__).parents[3] / "qualgate" / "refmodel" / "demo.yaml"  # the shipped sets, four variants
SAVED = 0.5
QUICK = (
    ("[arithmetic, json_extract, tool_calls, code, transform, reformat, grounded_qa]", "[json_extract]"),
    ("    - {metric: tool_call.valid, evalset: tool_calls, max_drop: 0.05}\n", ""),
)


def measured_rows(*, quick: bool, store: str = "") -> tuple[Row]:
    if store:
        return (replayed(*_stored(store)),)
    with tempfile.TemporaryDirectory() as folder:
        return (replayed(*_made(Path(folder), quick)),)


def replayed(evidence: RunEvidence, policy: Policy) -> Row:
    """evidence: of a complete run whose variants read the baseline's answers. policy: its own, which saw every case."""
    stop = EarlyStop(seed=0)
    order = order_of(evidence, stop.seed)
    stopping = replace(policy, stop=replace(stop, looks=planned_looks(order, replace(policy, stop=stop))))
    rounds = [_variant(evidence, policy, stopping, order, arm) for arm in evidence.variants]
    decodes = {name: sum(one[name] for one in rounds) for name in ("diverged", "decoded", "least", "fixed")}
    saved = 1 - decodes["decoded"] / decodes["diverged"]
    gross = max(rounds, key=lambda one: one["diverged"])  # of a broken variant almost every answer is to be decoded
    others = {name: decodes[name] - gross[name] for name in ("diverged", "decoded")}
    measured = decodes | {"saved": saved, "saved_without_the_worst": 1 - others["decoded"] / max(1, others["diverged"])}
    same = all(one["word"] == one["fixed_word"] for one in rounds)
    spread = [min(one["saved"] for one in rounds), max(one["saved"] for one in rounds)]
    return Row(id="early.decodes", measured=measured, spread=spread, met=same and saved >= SAVED, rounds=rounds)


def _variant(evidence: RunEvidence, policy: Policy, stopping: Policy, order: Order, arm: ArmEvidence) -> dict[str, Any]:
    assert stopping.stop is not None, "a policy that stops early"
    both = {arm.name, evidence.baseline.name}
    mine = replace(evidence, variants=(arm,), expected=tuple(key for key in evidence.expected if key.arm in both))
    settled = (one for at in stopping.stop.looks if (one := look(mine, stopping, arm.name, order, at=at)).settled)
    found = next(settled, None) or look(mine, stopping, arm.name, order)
    forked = {_question(unit) for unit in arm.units if unit.first_divergence is not None}
    questions = [question for cluster in order for question in cluster]
    diverged = [question for question in questions if question in forked]
    decoded = [question for question in questions[: found.seen] if question in forked]

    def by_look(done: Collection[Question]) -> str:
        again = look(_read_only(mine, forked - set(done)), stopping, arm.name, order, at=found.seen)
        return again.verdict.word if again.settled else "open"

    def by_all(done: Collection[Question]) -> str:
        return decide_plain(_read_only(mine, forked - set(done)), policy)[0].word

    word = by_all(diverged)
    return {
        "variant": arm.name, "word": found.verdict.word, "fixed_word": word, "seen": found.seen,
        "diverged": len(diverged), "decoded": len(decoded), "saved": 1 - len(decoded) / max(1, len(diverged)),
        "least": _fewest(decoded, lambda done: by_look(done) == found.verdict.word) if found.settled else len(decoded),
        "fixed": _fewest(diverged, lambda done: by_all(done) == word),
    }  # fmt: skip


def _fewest(questions: list[Question], enough: Callable[[Collection[Question]], bool]) -> int:
    """The shortest beginning that is enough, were more never less."""
    low, high = 0, len(questions)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(questions[:middle]) else (middle + 1, high)
    return low


def _read_only(evidence: RunEvidence, unsaid: Collection[Question]) -> RunEvidence:
    """These of the variant's answers not decoded: nobody can score them."""

    def read(unit: UnitEvidence) -> UnitEvidence:
        if _question(unit) not in unsaid:
            return unit
        return replace(
            unit, values=unit.values | dict.fromkeys(unit.scorers), unsaid=dict.fromkeys(unit.scorers, "read")
        )

    (arm,) = evidence.variants
    return replace(evidence, variants=(replace(arm, units=tuple(map(read, arm.units))),))


def _question(unit: UnitEvidence) -> Question:
    return unit.key.evalset, unit.key.case_id, unit.key.repeat


def _stored(url: str, run_id: str = "") -> tuple[RunEvidence, Policy]:
    with open_store(url) as store:
        run_id = run_id or queries.latest_run(store)
        return known(store, run_id), runs.policy(store, run_id)


def _made(folder: Path, quick: bool) -> tuple[RunEvidence, Policy]:
    text = GATE_FILE.read_text()
    for old, new in QUICK if quick else ():
        assert old in text, "the demo's gate file is another"
        text = text.replace(old, new)
    (folder / "gate.yaml").write_text(text)
    gate = load_gate_file(folder / "gate.yaml")
    return _stored(gate.store_url, run_gate(gate).run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description="Decodes that `stop: early` saves of a run that decoded all.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("store", nargs="?", default="", help="a store's URL, of a complete run; else one is made")
    arguments = parser.parse_args()
    print(json.dumps([asdict(row) for row in measured_rows(quick=arguments.quick, store=arguments.store)], indent=1))


if __name__ == "__main__":
    main()
