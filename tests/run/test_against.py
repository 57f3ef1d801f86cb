"""A run of the shipped model with one of its variants as a second baseline."""

from __future__ import annotations

import json

from qualgate.config import load_gate_file
from qualgate.errors import Exit
from qualgate.evalsets import shipped_folder
from qualgate.pipeline.attest import expected_of
from tests.command_line import qualgate
from tests.gated_model import GATE_FILE, write_evalset
from tests.run.commands import changed, with_variants

AGAINST = "  against: {yesterday: {rules: [{metric: exact_match, max_drop: 0.1}]}}\n"


def test_a_variant_is_a_second_baseline_and_gets_no_verdict(tmp_path):
    rows = (shipped_folder() / "arithmetic.jsonl").read_text().splitlines()[:80]
    write_evalset(tmp_path, [json.loads(row) for row in rows])
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    with_variants(tmp_path, "variants: {yesterday: {quantize: int8}, same: {model: reference}}\n")
    changed(tmp_path, ("./model, dtype: float32", "reference"), ("store:", f"{AGAINST}store:"))
    ran = qualgate("run", "gate.yaml", "--json", cwd=tmp_path)
    (verdict,) = json.loads(ran.stdout)["verdicts"]
    assert (ran.returncode, verdict["variant"], verdict["word"]) == (Exit.APPROVE, "same", "approve"), ran.stderr
    assert [c["against"] for c in verdict["comparisons"]] == ["", "", "yesterday"]
    stricter = changed(tmp_path, ("max_drop: 0.1}]}}", "max_drop: 0.001}]}}"), file="stricter.yaml")
    again = qualgate("gate", "stricter.yaml", "--json", cwd=tmp_path)
    assert again.returncode == Exit.UNDECIDED, again.stderr
    assert json.loads(again.stdout)["verdicts"][0]["reasons"][0].startswith("against yesterday: ")
    policies = {expected_of(load_gate_file(file)).policy for file in (stricter, tmp_path / "gate.yaml")}
    assert len(policies) == 2  # so `verify` by one file refuses an attestation by the other
