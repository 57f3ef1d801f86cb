"""`tool_call.served` follows the parser of the server that a set names, or else of the engine that serves an arm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.pipeline.servers_read import with_servers
from qualgate.pipeline.staleness import of_today
from qualgate.records import ArmSpec, Served
from qualgate.scoring import score, scorer_versions
from tests.pipeline.outputs import write

CASE = {"prompt": "Q", "max_new_tokens": 8, "tools": [{"name": "f", "parameters": {}}],
        "expected_calls": [{"name": "f", "arguments": {}}]}  # fmt: skip
UNCLOSED = '<tool_call>\n{"name": "f", "arguments": {}}'  # which vLLM calls, and SGLang as Qwen 2.5's does not


def a_set(folder, **said):
    write(folder / "calls.jsonl", [{**CASE, "id": "a"}, {**CASE, "id": "b", "prompt": "R", "served_by": "vllm"}])
    lines = "".join(f"{key}: {value}\n" for key, value in ({"metrics": "[tool_call.served]"} | said).items())
    (folder / "calls.yaml").write_text(f"name: calls\nversion: '1'\ndialect: qwen25\n{lines}")
    return evalsets.load("./calls.yaml", folder)


def arm(engine: str | None) -> ArmSpec:
    spec = ArmSpec(name=f"by {engine}", model="m")
    return spec if engine is None else replace(spec, served=Served(endpoint="http://h/v1", engine=engine))


def read_as(item) -> list[tuple[bool | None, str]]:
    return [(row.verdict, row.scorer) for case in item.cases for row in score(case, item, UNCLOSED, "eos")]


VLLM, SGLANG = (True, "tool_call.served/4 vLLM 0.33.0"), (False, "tool_call.served/4 SGLang 0.5.23")


def test_an_engine_that_serves_an_arm_is_read_where_nobody_says(tmp_path):
    told: list[str] = []
    asked = a_set(tmp_path)
    [found] = with_servers([asked], [arm(None), arm("sglang"), arm("")], told.append)
    assert read_as(found) == [SGLANG, VLLM]
    assert "as served by SGLang 0.5.23, for `engine: sglang` serves an arm" in told[0]
    assert found.content == asked.content, "the set is the one of the file"


@pytest.mark.parametrize("engines", [(None,), ("",), ("qualgate",)])
def test_vllm_is_read_where_no_engine_of_another_is_named(tmp_path, engines):
    asked = a_set(tmp_path)
    assert with_servers([asked], [*map(arm, engines)], pytest.fail) == (asked,)
    assert read_as(asked) == [VLLM, VLLM]


def test_a_set_that_says_is_read_as_it_says(tmp_path):
    asked = a_set(tmp_path, served_by="sglang")
    assert with_servers([asked], [arm("vllm"), arm("ollama")], pytest.fail) == (asked,)
    assert read_as(asked) == [SGLANG, VLLM]


@pytest.mark.parametrize(
    ("engines", "why"),
    [
        (("trtllm",), "trtllm, whose parsers are not known"),
        (("vllm", "sglang"), "sglang and vllm, whose parsers differ"),
    ],
)
def test_arms_of_engines_that_are_unknown_or_differ_are_refused_before_anything_is_asked(tmp_path, engines, why):
    with pytest.raises(UsageError, match=rf"{why}.*Declare `served_by` in calls.yaml \(vllm or sglang\)"):
        with_servers([a_set(tmp_path)], [*map(arm, engines)], pytest.fail)


def test_a_set_without_the_metric_is_asked_nothing(tmp_path):
    asked = a_set(tmp_path, metrics="[tool_call.correct]")
    assert with_servers([asked], [arm("trtllm")], pytest.fail) == (asked,)


@pytest.mark.parametrize(
    ("said", "why"),
    [({"served_by": "tgi"}, "served_by"), ({"served_by": "sglang", "metrics": "[tool_call.correct]"}, "no metric of")],
)
def test_a_server_that_is_unknown_or_read_by_no_metric_is_a_fault_of_the_set(tmp_path, said, why):
    with pytest.raises(UsageError, match=why):
        a_set(tmp_path, **said)


def test_a_stored_score_is_of_its_own_server_today():
    now = scorer_versions()
    assert of_today("tool_call.served", "tool_call.served/3", now) == VLLM[1]
    assert of_today("tool_call.served", "tool_call.served/4 SGLang 0.5.9", now) == SGLANG[1]
    assert of_today("tool_call.served", f"{SGLANG[1]} reasoning/1 think", now).startswith(f"{SGLANG[1]} reasoning/")
    assert of_today("numeric", now["numeric"], now) == now["numeric"]
