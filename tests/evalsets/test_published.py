"""LiveCodeBench's and EvalPlus's rows become cases as they stand, and what cannot be read safely is refused."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.evalsets import published
from qualgate.evalsets.own_rows import read_rows
from qualgate.sandbox import Sandbox, probe
from qualgate.scoring.code import METRIC, score_code

PUBLIC = json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}])
SUMS = {
    "question_id": "abc_1", "question_content": "Add two numbers.", "platform": "atcoder", "difficulty": "easy",
    "starter_code": "", "public_test_cases": PUBLIC, "private_test_cases": "[]", "metadata": "{}",
}  # fmt: skip
CALLS = SUMS | {
    "question_id": "3000", "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
    "public_test_cases": json.dumps([{"input": "1\n[2]", "output": "3", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "add"}),
}  # fmt: skip
PLUS = {
    "task_id": "HumanEval/0", "prompt": "def f(x):\n    '''Twice x.'''\n", "entry_point": "f", "contract": "",
    "canonical_solution": "    return 2 * x\n", "base_input": [[1]], "plus_input": [[5]], "atol": 0, "test": "check",
}  # fmt: skip


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def cases(tmp_path, *rows: dict, chat: bool = True) -> list[dict]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [own] = read_rows(path, "code", chat=chat).sets
    assert own.metrics == ("code.pass",)
    (tmp_path / "code.jsonl").write_text("".join(json.dumps(case) + "\n" for case in own.cases))
    (tmp_path / "code.yaml").write_text("name: code\nversion: 1\nmetrics: [code.pass]\n")
    assert evalsets.check(tmp_path / "code.yaml") == ()
    return list(own.cases)


def test_rows_of_livecodebench_are_cases_with_inputs_and_outputs(tmp_path):
    private = packed(json.dumps([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]))
    first, second = cases(tmp_path, SUMS | {"private_test_cases": private}, CALLS)
    assert first["id"] == "abc_1"
    assert first["tests"] == [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "5 6\n", "stdout": "11\n"}]
    assert first["tags"] == ["atcoder", "easy"]
    assert "from typing import *\n" in first["prelude"]
    assert second["tests"] == [{"args": [1, [2]], "returns": 3}]
    assert second["fn_name"] == "add"
    assert "class Solution" in second["messages"][0]["content"]


@pytest.mark.parametrize("chat", [True, False])
def test_rows_of_evalplus_are_cases_with_a_reference(tmp_path, chat):
    if (sandbox := Sandbox.best()) is None:
        pytest.skip(str(probe()))
    [case] = cases(tmp_path, PLUS, chat=chat)
    assert (case["id"], case["base_input"], case["task_id"]) == ("HumanEval/0", [[1]], "HumanEval/0")
    answer = "def f(x): return x + x" if chat else "    return x + x\n"
    assert score_code(case, answer, sandbox=sandbox)[METRIC].verdict is True
    assert score_code(case, answer.replace("+", "-"), sandbox=sandbox)[METRIC].verdict is False


class Evil:
    def __reduce__(self):
        return (open, ("evil", "w"))


BAD = {
    "a pickle that would run something": (SUMS | {"private_test_cases": packed(Evil())}, "which is never loaded"),
    "a pickle of no text": (SUMS | {"private_test_cases": packed([1, 2])}, "which is never loaded"),
    "no base64": (SUMS | {"private_test_cases": "?!"}, "neither JSON nor a compressed text"),
    "no zlib": (SUMS | {"private_test_cases": base64.b64encode(b"abc").decode()}, "neither JSON nor a compressed text"),
    "a bomb": (SUMS | {"private_test_cases": packed("0" * 2**17)}, "unpacks to more than"),
    "no JSON": (SUMS | {"public_test_cases": "{"}, "`public_test_cases` is not valid JSON"),
    "no tests": (SUMS | {"public_test_cases": '[{"input": 1}]'}, "must be a list of tests"),
    "arguments that are no JSON": (CALLS | {"public_test_cases": PUBLIC}, "`public_test_cases` is not valid JSON"),
    "a reference that is no text": (PLUS | {"canonical_solution": 5}, "`canonical_solution`"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_row_that_cannot_be_read_safely_is_refused_by_line(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "MOST", 2**16)
    row, words = BAD[name]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"rows\.jsonl:1") as found:
        read_rows(tmp_path / "rows.jsonl", "code", chat=True)
    assert words in str(found.value)
    assert not (tmp_path / "evil").exists()
