"""A set's YAML that declares a dialect: its cases and their hashes are the same to `score` and to `gate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.evalsets import load
from qualgate.pipeline.score_files import choose_scorer, score_files
from tests.intake.score_files import code, gated
from tests.pipeline.outputs import write

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]
HEADER = "name: calls\nversion: '1'\nmetrics: [tool_call.correct]\n"
GATE_FILE = """\
version: 1
baseline: {model: ./m}
variants: {v: {model: ./n}}
evalsets: [./calls.yaml]
gate: {rules: [{metric: tool_call.correct, max_drop: 0.1}]}
"""
WRITTEN = {
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"a": %d}}]',
    "hermes": '<tool_call>{"name": "f", "arguments": {"a": %d}}</tool_call>',
}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A set of 150 cases beside a gate file, its lines alone in `lines/`, and outputs of two models in each dialect."""
    cases = [{"id": f"c{n}", "prompt": f"call f with {n}", "max_new_tokens": 9, "tools": TOOLS,
              "expected_calls": [{"name": "f", "arguments": {"a": n}}]} for n in range(150)]  # fmt: skip
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    (tmp_path / "calls.yaml").write_text(f"{HEADER}dialect: mistral\n")
    (tmp_path / "lines").mkdir()
    for place in (tmp_path, tmp_path / "lines"):
        write(place / "calls.jsonl", cases)
    for dialect, text in WRITTEN.items():
        for model in "ab":
            said = [{"id": f"c{n}", "text": text % n, "model": model} for n in range(150)]
            write(tmp_path / f"{dialect}-{model}.jsonl", said)
    return tmp_path


def scored(folder: Path, cases: str, model: str, dialect: str | None = None) -> Path:
    """Rows of the outputs in mistral's form, scored from the cases of that folder."""
    out = folder / f"{cases or 'set'}-{model}.rows"
    found = score_files(folder / cases / "calls.jsonl", folder / f"mistral-{model}.jsonl",
                        choose_scorer("tool_call", dialect=dialect), metric="tool_call.correct")  # fmt: skip
    write(out, [row.as_json() for row in found.rows])
    return out


def test_rows_scored_beside_the_yaml_are_of_the_sets_own_cases(folder):
    rows = [json.loads(line) for line in scored(folder, "", "a").read_text().splitlines()]
    assert [row["case_hash"] for row in rows] == [case.hash for case in load("./calls.yaml", folder).cases]
    assert all(row["verdict"] for row in rows), "and read in its dialect, which no option told"
    assert code((folder / "gate.yaml", scored(folder, "", "a"), scored(folder, "", "b"))) == 0


def test_rows_scored_from_the_lines_alone_are_let_through_and_the_verdict_says_so(folder):
    files = folder / "gate.yaml", scored(folder, "lines", "a", "mistral"), scored(folder, "lines", "b", "mistral")
    assert code(files) == 0
    assert "calls: rows were scored without the set's YAML, which declares `dialect: mistral`" in gated(files).stdout


def test_one_side_with_and_one_without_the_yaml_are_not_compared(folder):
    """The one may have been read in another dialect than the other."""
    for dialect in (None, "mistral"):
        files = folder / "gate.yaml", scored(folder, "lines", "a", dialect), scored(folder, "", "b")
        assert code(files) == 12


def test_lines_that_changed_are_another_version_all_the_same(folder):
    files = folder / "gate.yaml", scored(folder, "lines", "a"), scored(folder, "lines", "b")
    lines = (folder / "calls.jsonl").read_text()
    (folder / "calls.jsonl").write_text(lines.replace('call f with 7"', 'call f with seven"'))
    assert code(files) == 12
    assert "1 case was scored in another version" in gated(files).stdout


def test_an_option_that_the_yaml_contradicts_is_refused(folder):
    assert scored(folder, "", "a", "mistral")
    with pytest.raises(UsageError, match=r"--dialect hermes: .*calls\.yaml declares `dialect: mistral`"):
        scored(folder, "", "a", "hermes")


@pytest.mark.parametrize("yaml", ["- a list\n", "dialect: german\n", HEADER, "{"])
def test_a_yaml_that_declares_no_dialect_of_a_set_adds_nothing(folder, yaml):
    before = scored(folder, "lines", "a", "mistral").read_text()
    (folder / "lines" / "calls.yaml").write_text(yaml)
    assert scored(folder, "lines", "a", "mistral").read_text() == before


def test_a_dialect_that_there_is_not_is_the_yamls_fault(folder):
    (folder / "calls.yaml").write_text(f"{HEADER}dialect: mistrl\n")
    with pytest.raises(UsageError, match=r"calls\.yaml:4: unknown dialect 'mistrl'; did you mean 'mistral'"):
        scored(folder, "", "a")
