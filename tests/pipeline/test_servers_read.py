"""Who says what a server executes is settled before anything is generated: the arms' servers, a parser, or nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate import evalsets
from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.pipeline.servers_read import read_by, servers_held, with_servers
from qualgate.records import ArmSpec, Served
from qualgate.scoring import score
from tests.pipeline.outputs import write
from tests.served_environments import served_by, stand_in

CASE = {"prompt": "Q", "max_new_tokens": 8, "tools": [{"name": "f", "parameters": {}}],
        "expected_calls": [{"name": "f", "arguments": {}}]}  # fmt: skip
METRIC = "tool_call.served"
UNCLOSED = '<tool_call>\n{"name": "f", "arguments": {}}'
HERE = ArmSpec(name="here", model="m")
BY_CHAT = replace(HERE, name="chat", served=Served(endpoint="http://h/v1", engine="vllm"))
BY_TOKENS = replace(HERE, name="tokens", served=Served(endpoint="http://h/v1", engine="vllm", tokenizer="t"))


def a_set(folder, **said):
    rows = [{**CASE, "id": "a"}, {**CASE, "id": "b", "prompt": "R", "served_by": served_by("1.0")}]
    write(folder / "calls.jsonl", rows)
    lines = "".join(f"{key}: {value}\n" for key, value in ({"metrics": "[tool_call.served]"} | said).items())
    (folder / "calls.yaml").write_text(f"name: calls\nversion: '1'\ndialect: hermes\n{lines}")
    return evalsets.load("./calls.yaml", folder)


def gate(folder, by: dict[str, str] | None, metric: str = "tool_call.correct"):
    said = "" if by is None else f"served_by: {{engine: {by['engine']}, python: {by['python']}}}\n"
    text = "version: 1\nbaseline: {model: reference}\nvariants: {v: {quantize: int8}}\nevalsets: [./calls.yaml]\n"
    (folder / "gate.yaml").write_text(f"{text}gate: {{rules: [{{metric: {metric}, max_drop: 0.1}}]}}\n{said}")
    return load_gate_file(folder / "gate.yaml")


def scorers(item) -> list[tuple[bool | None, str]]:
    return [(row.verdict, row.scorer) for case in item.cases for row in score(case, item, UNCLOSED, "eos")]


@pytest.mark.parametrize("arms", [[HERE], [HERE, BY_TOKENS]])
def test_a_case_that_names_no_server_is_read_by_the_gate_files(tmp_path, arms):
    told: list[str] = []
    asked = a_set(tmp_path)
    [found] = with_servers([asked], arms, gate(tmp_path, served_by("2.0"), METRIC), told.append)
    assert scorers(found) == [(True, "tool_call.served/5 vllm 2.0"), (True, "tool_call.served/5 vllm 1.0")]
    assert found.content == asked.content, "the set is the one of the file"
    assert servers_held([found]) == ("vllm 1.0", "vllm 2.0")
    assert told[0] == f"calls: texts are read by the tool parsers of vllm in {stand_in('2.0')}"


def test_a_set_names_a_server_for_its_cases(tmp_path):
    told: list[str] = []
    asked = a_set(tmp_path, served_by=f"{{engine: vllm, python: {stand_in('3.0')}}}")
    [found] = with_servers([asked], [HERE], gate(tmp_path, served_by("2.0"), METRIC), told.append)
    assert servers_held([found]) == ("vllm 1.0", "vllm 3.0")


def test_servers_that_give_their_own_calls_decide_and_no_parser_is_started(tmp_path):
    told: list[str] = []
    gone = {"engine": "vllm", "python": "/gone"}
    [found] = with_servers([a_set(tmp_path)], [BY_CHAT, BY_CHAT], gate(tmp_path, gone, METRIC), told.append)
    assert servers_held([found]) == ()
    assert told == ["calls: `tool_call.served` is decided by the calls that the arms' servers give themselves"]


def test_where_nobody_says_it_the_metric_is_null_and_a_rule_on_it_is_refused(tmp_path):
    told: list[str] = []
    [found] = with_servers([a_set(tmp_path)], [HERE], gate(tmp_path, None), told.append)
    assert "`tool_call.served` of a is null" in told[0]
    assert "served_by: {engine: vllm, python: PATH}" in told[0]
    assert scorers(found)[0] == (None, "tool_call.served/5")
    with pytest.raises(UsageError, match=r"of a is null.*and a rule names it"):
        with_servers([a_set(tmp_path)], [HERE], gate(tmp_path, None, METRIC), pytest.fail)


def test_arms_that_differ_in_who_says_it_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"which `tool_call.served` cannot hold against each other"):
        with_servers([a_set(tmp_path)], [HERE, BY_CHAT], gate(tmp_path, served_by()), pytest.fail)


def test_an_environment_that_is_gone_is_told_before_anything_is_generated(tmp_path):
    gone = {"engine": "vllm", "python": str(tmp_path / "python")}
    asked = a_set(tmp_path)
    with pytest.raises(UsageError, match=r"evalset calls: `served_by`: .*does not run as a Python interpreter"):
        servers_held([read_by(asked, [HERE], gone)])


def test_a_set_without_the_metric_is_asked_nothing(tmp_path):
    asked = a_set(tmp_path, metrics="[tool_call.correct]")
    assert with_servers([asked], [HERE, BY_CHAT], gate(tmp_path, None), pytest.fail) == (asked,)
    assert servers_held([asked]) == ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"served_by": "vllm"}, "served_by"),
        ({"served_by": "{engine: tgi, python: /p}"}, "engine"),
        ({"served_by": "{engine: vllm, python: p}"}, "absolute path"),
        ({"served_by": "{engine: vllm, python: /p}", "metrics": "[tool_call.correct]"}, "no metric of"),
    ],
)
def test_a_server_that_cannot_be_read_or_that_no_metric_asks_is_a_fault_of_the_set(tmp_path, said, why):
    with pytest.raises(UsageError, match=why):
        a_set(tmp_path, **said)
