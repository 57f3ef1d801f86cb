"""The editor's schema says what the loader says, as far as a schema can; `load` and `faults` ask it too."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from jsonschema import Draft7Validator

from qualgate.config import gate_file_schema
from qualgate.errors import UsageError
from qualgate.records.metrics import METRICS
from tests.config.gate_files import SMALL, changed

SECTIONS = """\
generation: {temperature: 0.7}
generation: {temperature: 0.0}
generation: {temperature: 101}
generation: {temperature: 0.7, top_k: 40, top_p: 1, min_p: 0}
generation: {temperature: 0.7, top_p: 1.1}
generation: {temperature: 0.7, min_p: 0.1, repeats: 2}
generation: {min_p: 0}
generation: {seed: 12}
store: postgresql://h/db
store: postgresql://me@[::1]:5432/db?host=/run
store: postgresql://me:pw@h/db
store: postgresql://h
workers: {backend: ray, address: auto}
workers: {backend: local, address: auto}
workers: {devices: [0, 1]}
workers: {devices: [[0, 1], [2, 3]]}
workers: {devices: [-1]}
workers: {}
""".splitlines()
GATES = ("{nel_policy: said.jsonl}", "{nel_policy: said.jsonl, alpha: 0.1}", "{alpha: 0.1}",
         "{nel_policy: said.jsonl, rules: [{metric: numeric, max_drop: 0.1}]}")  # fmt: skip


def test_the_schema_is_draft_7_and_plain_json():
    schema = gate_file_schema()
    Draft7Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].startswith("http://json-schema.org/draft-07/")


def test_every_metric_and_no_planned_one_is_offered_to_the_editor():
    closed, open_names = gate_file_schema()["$defs"]["RuleEntry"]["properties"]["metric"]["anyOf"]
    assert closed["enum"] == list(METRICS)
    assert re.search(open_names["pattern"], "harness.match")
    assert not any(re.search(open_names["pattern"], name) for name in (*METRICS, "harness."))


@pytest.mark.parametrize(
    "text", [*(f"{SMALL}{section}\n" for section in SECTIONS), *(changed(5, f"gate: {gate}") for gate in GATES)]
)
def test_schema_and_loader_agree_on_what_no_other_test_writes(load, text):
    with suppress(UsageError):
        load(text, schema=True)
