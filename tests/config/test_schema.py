"""The editor's schema says what the loader says, as far as a schema can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from qualgate.config import gate_file_schema, load_gate_file
from qualgate.documents import read_yaml
from qualgate.errors import UsageError
from tests.config.gate_files import BEFORE_RULES, SMALL, WHOLE
from tests.config.test_faults import ONE_LINE_CHANGES, RULES

# What a schema cannot see: the disk, other parts of the file, names only the program knows.
BEYOND_A_SCHEMA = (
    "no model folder", "written ./", "no evalset at", "is not one this file runs", "the one on line", "twice",
    "no shipped evalset", "no shipped calibration set", "no calibration set at", "cannot be a path", "home folder",
    "no adapter's folder",
    "levels, and 4 are the most",
    "levels, and 4 are the most", "is no command", "is no address", "is the API's address", "same server",
    "answers to each case, and `generation.repeats`",
    "finite number", "valid integer (found 1.0)",  # JSON has no infinity, and to JSON Schema 1.0 is an integer
)  # fmt: skip
VALIDATOR = Draft7Validator(gate_file_schema())


def corpus() -> list[str]:
    lines = SMALL.splitlines()
    changed = ["\n".join([*lines[: n - 1], change, *lines[n:], ""]) for n, change, _ in ONE_LINE_CHANGES]
    ruled = [
        "\n".join([*BEFORE_RULES, f"gate: {{rules: [{{metric: numeric, max_drop: 0.1}}, {r}]}}", ""]) for r, _ in RULES
    ]
    sections = [
        "generation: {temperature: 0.7}", "generation: {temperature: 0.0}", "generation: {repeats: 2}",
        "generation: {temperature: 0.7, repeats: 2}", "generation: {temperature: 0, repeats: 2}",
        "generation: {temperature: 0.7, repeats: 1001}", "generation: {temperature: 0.001}",
        "generation: {temperature: 0.7, top_p: 0.9}", "generation: {temperature: 101}",
        "generation: {temperature: 0.7, top_k: 40, top_p: 1, min_p: 0}", "generation: {temperature: 0.7, top_k: 0}",
        "generation: {temperature: 0.7, top_p: 0}", "generation: {temperature: 0.7, top_p: 1.1}",
        "generation: {temperature: 0.7, min_p: 1}", "generation: {temperature: 0, top_k: 9}",
        "generation: {temperature: 0.7, min_p: 0.1, repeats: 2}", "generation: {min_p: 0}", "generation: {top_p: 0.9}",
        "generation: {seed: -1}", "generation: {seed: 12}", "store: sqlite:////var/q.db", "store: qualgate.db",
        "store: postgresql://h/db", "store: postgresql://me@[::1]:5432/db?host=/run", "store: postgresql://me:pw@h/db",
        "store: postgresql://h", "store: postgresql://h/db?password=x", "store: sqlite:///q.db?mode=ro",
        "store: sqlite:///a/", "store: 'sqlite:///:memory:'", "workers: {backend: ray}", "workers: {count: 0}",
        "workers: {backend: ray, address: auto}", "workers: {backend: ray, address: 'h:6379'}",
        "workers: {address: auto}",
        "workers: {backend: ray, address: 'ray://h:1'}", "workers: {backend: ray, address: h}",
        "workers: {backend: local, address: auto}",
        "workers: {count: auto}", "workers: {count: some}", "workers: {devices: cuda}", "workers: {devices: [0, 1]}",
        "workers: {devices: [[0, 1], [2, 3]]}", "workers: {devices: [[0], 1]}", "workers: {devices: [[]]}",
        "workers: {devices: [1, 1]}", "workers: {devices: [-1]}", "workers: {devices: []}", "workers: {}", "gates: {}",
    ]  # fmt: skip
    gates = [
        "{nel_policy: nel.yaml}", "{nel_policy: nel.yaml, alpha: 0.1}", "{}", "{alpha: 0.1}",
        "{nel_policy: nel.yaml, rules: [{metric: numeric, max_drop: 0.1}]}", "{nel_policy: 'http://x/y'}",
    ]  # fmt: skip
    return [
        *("\n".join([*BEFORE_RULES, f"gate: {one}", ""]) for one in gates),
        SMALL,
        WHOLE,
        *changed,
        *ruled,
        *(f"{SMALL}{section}\n" for section in sections),
    ]


def test_the_schema_is_draft_7_and_plain_json():
    schema = gate_file_schema()
    Draft7Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].startswith("http://json-schema.org/draft-07/")


def test_every_metric_and_no_planned_one_is_offered_to_the_editor():
    from qualgate.metrics import METRICS

    assert gate_file_schema()["$defs"]["RuleEntry"]["properties"]["metric"]["enum"] == list(METRICS)


@pytest.mark.parametrize("text", corpus())
def test_schema_and_loader_agree(text, tmp_path: Path):
    (tmp_path / "models" / "prod").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "support.yaml").touch()
    (tmp_path / "nel.yaml").touch()
    path = tmp_path / "gate.yaml"
    path.write_text(text)
    document = read_yaml(path)
    if document.faults:
        return  # not a value yet
    accepted = VALIDATOR.is_valid(document.value)
    refused = ""
    try:
        load_gate_file(path)
    except UsageError as error:
        refused = str(error)
    if not refused:
        assert accepted, [error.message for error in VALIDATOR.iter_errors(document.value)]
    elif not all(any(word in line for word in BEYOND_A_SCHEMA) for line in refused.splitlines()):
        assert not accepted, refused
