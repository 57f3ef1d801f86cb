"""Our own evalset of choices, judged by likelihood in a run, beside lm-eval's task of the same documents."""

from __future__ import annotations

import json

import pytest

from qualgate.config import load_gate_file
from qualgate.run import run_gate
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.command_line import forked_workers
from tests.harness.lm_eval_tasks import CHAT, sum_row, write_tasks

pytest.importorskip("lm_eval")

DOCUMENTS = 8
GATE = """\
version: 1
baseline: {{model: reference, dtype: float32}}
variants: {{int2: {{quantize: {{method: int2, group_size: 64}}}}}}
evalsets: [{{lm_eval: choice, include_path: {tasks}}}, ./ours.yaml]
gate: {{rules: [{{metric: multiple_choice.acc, max_drop: 0.15}}]}}
workers: {{count: 1, devices: cpu}}
"""


def test_a_set_of_choices_scores_as_lm_evals_task_of_the_same_documents(tmp_path):
    tasks = write_tasks(tmp_path / "tasks", DOCUMENTS)
    rows = [sum_row(1234 + 877 * i, 4321 + 613 * i) for i in range(DOCUMENTS)]
    cases = [
        {"id": str(n), "prompt": CHAT.replace("{{question}}", row["question"]), "delimiter": "",
         "choices": row["choices"], "answer": row["right"]}
        for n, row in enumerate(rows)
    ]  # fmt: skip
    (tmp_path / "ours.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    metrics = "[multiple_choice.acc, multiple_choice.acc_norm, multiple_choice.acc_bytes]"
    (tmp_path / "ours.yaml").write_text(f"name: ours\nversion: 1\nmetrics: {metrics}\n")
    (tmp_path / "gate.yaml").write_text(GATE.format(tasks=tasks))
    loaded = load_gate_file(tmp_path / "gate.yaml")
    with forked_workers():
        outcome = run_gate(loaded)
    assert outcome.failures == ()
    assert [verdict.word for verdict in outcome.verdicts] != ["invalid"]
    with open_store(loaded.store_url) as store:
        evidence = runs.evidence(store, outcome.run_id)
    seen = set()
    for arm in (evidence.baseline, *evidence.variants):
        units = {(unit.key.evalset, unit.key.case_id): unit for unit in arm.units}
        assert len(units) == 2 * DOCUMENTS
        for n in range(DOCUMENTS):
            ours, theirs = units["ours", str(n)], units["choice", str(n)]
            for name in ("acc", "acc_norm"):
                assert ours.values[f"multiple_choice.{name}"] == theirs.values[f"lm_eval.{name}"]
                seen.add((name, ours.values[f"multiple_choice.{name}"]))
            # lm-eval's task reads each choice without its question as well, behind these, for acc_mutual_info.
            assert ours.tokens < theirs.tokens
            assert ours.kl == pytest.approx(theirs.kl[: len(ours.kl)], abs=1e-5)  # read in another batch
            assert bool(ours.kl) is not (arm is evidence.baseline)
    assert {value for _, value in seen} == {0.0, 1.0}, "the broken variant takes a wrong choice somewhere"
