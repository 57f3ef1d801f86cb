"""Served arms that are said to speculate, end to end: by their servers' counters, alone and among four."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.served.scripted import Reply, Scripted, as_json, scripted, text_piece

CASES = 150
COUNTED = """\
vllm:spec_decode_num_drafts_total{{engine="0"}} {0}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {1}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2}
"""
NO_COUNTER = 'vllm:generation_tokens_total{engine="0"} 5\n'
RULES = "evalsets: [./echo.yaml]\ngate: {rules: [{metric: exact_match, max_drop: 0.10}]}\nworkers: {count: 1}\n"
FOUR = "four_arm: {quantization: int4, speculation: fast, both: both}\n"


def echoing(server: Scripted, *, drafts: int | None = None) -> None:
    """It answers each prompt by itself, and drafts so many times for each; None: it has no counter of drafts."""
    asked = [0]

    def page() -> None:
        told = NO_COUNTER if drafts is None else COUNTED.format(*(each * drafts * asked[0] for each in (1, 4, 3)))
        server.metrics = Reply(body=told.encode(), kind="text/plain")

    def said(body: dict) -> Reply:
        with server.lock:
            asked[0] += 1
            page()
        usage = {"prompt_tokens": 4, "completion_tokens": 3}
        return as_json({**text_piece(body["prompt"], "stop"), "usage": usage})

    server.otherwise = said
    page()


@contextmanager
def servers(count: int) -> Iterator[list[Scripted]]:
    with ExitStack() as open_:
        found = [open_.enter_context(scripted()) for _ in range(count)]
        for one in found:
            echoing(one)
        yield found


@pytest.fixture
def workspace(tmp_path) -> Path:
    rows = [{"id": f"echo-{n}", "task": "echo", "prompt": f"say {n}", "max_new_tokens": 9, "answer": f"say {n}"}
            for n in range(CASES)]  # fmt: skip
    write_evalset(tmp_path, rows)
    return tmp_path


def run(workspace: Path, arms: str, rules: str = RULES):
    (workspace / "gate.yaml").write_text(f"version: 1\n{arms}{rules}store: sqlite:///qualgate.db\n")
    return qualgate("run", "gate.yaml", "--json", cwd=workspace)


def arm(server: Scripted, more: str = "") -> str:
    return f"{{endpoint: '{server.address}', model: m, engine: vllm{more}}}"


def test_an_arm_that_is_said_to_speculate_is_approved_where_its_server_drafted_and_reports_tell_how(workspace):
    write_evalset(workspace, [{"id": "x", "prompt": f"say {CASES}", "max_new_tokens": 9, "answer": "x"}], "other")
    with servers(2) as (base, other):
        echoing(other, drafts=2)
        rules = RULES.replace("[./echo.yaml]", "[./echo.yaml, ./other.yaml]")
        arms = f"baseline: {arm(base)}\nvariants: {{fast: {arm(other, ', arm: speculation')}}}\n"
        done = run(workspace, arms, rules)
    assert done.returncode == Exit.APPROVE, done.stderr
    told = "drafting proven: drafted 1,208 tokens, 906 accepted (75.0%) in 302 verifications"
    [verdict] = json.loads(done.stdout)["verdicts"]
    assert any(told in reason for reason in verdict["reasons"]), verdict["reasons"]
    for form in ((), ("--format", "html"), ("--format", "markdown")):
        shown = " ".join(qualgate("report", "gate.yaml", *form, cwd=workspace).stdout.split())
        assert "4.00 tokens a verification, 75.0% of 1,208 drafted tokens accepted" in shown, form


@pytest.mark.proof
def test_four_served_arms_are_compared_and_one_that_drafts_nothing_chooses_none(workspace):
    with servers(4) as given:
        echoing(given[2], drafts=2)
        echoing(given[3], drafts=0)
        variants = ", ".join(
            f"{name}: {arm(one)}" for name, one in zip(("int4", "fast", "both"), given[1:], strict=True)
        )
        done = run(workspace, f"baseline: {arm(given[0])}\nvariants: {{{variants}}}\n{FOUR}")
    assert done.returncode == Exit.UNDECIDED, done.stderr
    answer = json.loads(done.stdout)["verdicts"][-1]["four_arm"]
    status = {(step["arm"], step["step"]): step["status"] for step in answer["steps"]}
    assert (status["fast", "drafting"], status["both", "drafting"]) == ("proven", "undecided")
    assert (status["fast", "parity"], status["int4", "quality"]) == ("proven", "proven")
    assert answer["choice"] == ""


def test_four_arms_of_which_some_are_generated_here_are_refused(workspace):
    with servers(2) as given:
        variants = f"{{int4: {{quantize: int4}}, fast: {arm(given[0])}, both: {arm(given[1])}}}"
        done = run(workspace, f"baseline: {{model: reference}}\nvariants: {variants}\n{FOUR}")
    assert done.returncode == Exit.USAGE
    assert "Serve all four" in done.stderr
