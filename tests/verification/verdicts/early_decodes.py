"""Row `early.decodes`: of a stored run's answers that had to be decoded, how many `stop: early` would have left undone.

A variant reads the baseline's answers; only where it would say another token does it decode. The stored run decoded all
of those. It is replayed by its own policy with `stop: early`: an answer is decoded where it diverged and stands before
the look that settles its variant.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.config import load_gate_file
from qualgate.gate.early import Order, Question, look, order_of, planned_looks
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.evidence import known
from qualgate.records import ArmEvidence, EarlyStop, Policy, RunEvidence, UnitEvidence
from qualgate.run import run_gate
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.verification.verdicts.row import Row

GATE_FILE = Path(__file__).parents[3] / "qualgate" / "refmodel" / "demo.yaml"  # the shipped sets, four variants
SAVED = 0.5
QUICK = (
    ("[arithmetic, json_extract, tool_calls, code, transform, reformat, grounded_qa]", "[json_extract]"),
    ("    - {metric: tool_call.valid, evalset: tool_calls, max_drop: 0.05}\n", ""),
)


def measured_rows(*, quick: bool) -> tuple[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return (replayed(*_made(Path(folder), quick)),)


def replayed(evidence: RunEvidence, policy: Policy) -> Row:
    """evidence: of a complete run whose variants read the baseline's answers. policy: its own, which saw every case."""
    stop = EarlyStop(seed=0)
    order = order_of(evidence, stop.seed)
    stopping = replace(policy, stop=replace(stop, looks=planned_looks(order, replace(policy, stop=stop))))
    rounds = [_variant(evidence, policy, stopping, order, arm) for arm in evidence.variants]
    decodes = {name: sum(one[name] for one in rounds) for name in ("diverged", "decoded")}
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

    return {
        "variant": arm.name, "word": found.verdict.word, "fixed_word": decide_plain(mine, policy)[0].word,
        "seen": found.seen, "diverged": len(diverged), "decoded": len(decoded),
        "saved": 1 - len(decoded) / max(1, len(diverged)),
    }  # fmt: skip


def _question(unit: UnitEvidence) -> Question:
    return unit.key.evalset, unit.key.case_id, unit.key.repeat


def _made(folder: Path, quick: bool) -> tuple[RunEvidence, Policy]:
    text = GATE_FILE.read_text()
    for old, new in QUICK if quick else ():
        assert old in text, "the demo's gate file is another"
        text = text.replace(old, new)
    (folder / "gate.yaml").write_text(text)
    gate = load_gate_file(folder / "gate.yaml")
    run_id = run_gate(gate).run_id
    with open_store(gate.store_url) as store:
        return known(store, run_id), runs.policy(store, run_id)
