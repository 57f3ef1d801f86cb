"""What a gate file with served arms may not ask, and what a user is told before a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.four_arm import as_four_arms, check_drafted, check_served_alike
from qualgate.pipeline.served_arms import check_served, leaves_the_machine, rests_on_lists
from qualgate.records import ArmSpec, Case, Evalset, Served

GATE = """\
version: 1
baseline: {model: reference}
variants: {v: {endpoint: 'http://127.0.0.1:8000/v1', model: m, tokenizer: reference}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
"""
STARTED = "v: {serve: 'vllm serve m --port {port}', model: m, tokenizer: reference}"


def checked(folder: Path, change: tuple[str, str] = ("", ""), body: dict | None = None) -> None:
    file = folder / "gate.yaml"
    assert change[0] in GATE
    file.write_text(GATE.replace(*change) if change[0] else GATE)
    cases = (Case(evalset="s", body={"id": "c", "prompt": "p", **(body or {})}),)
    check_served(
        load_gate_file(file), [Evalset(name="s", version="1", sha256="", metrics=("exact_match",), cases=cases)]
    )


def test_answers_that_are_scored_may_be_asked_of_any_server(tmp_path):
    checked(tmp_path)
    checked(tmp_path, body={"constraint": {"json_schema": {}}})
    checked(tmp_path, body={"until": ["\n"]})


@pytest.mark.parametrize(
    ("change", "body", "said"),
    [
        (("", ""), {"requests": [["a", "b"]]}, "likelihood of a text"),
        (("", ""), {"constraint": {"regex": "a"}}, "a regular expression"),
        (("0.02}", "0.02}, {metric: cost_per_accepted_answer, max_ratio: 1}"), {}, "not priced yet"),
    ],
)
def test_what_this_version_cannot_see_of_a_server_is_refused(change, body, said, tmp_path):
    (tmp_path / "p.yaml").write_text('version: "1"\ncurrency: EUR\noutput_token: 0.1\n')
    if "cost" in change[1]:
        change = (f"{change[0]}]}}", f"{change[1]}]}}\nprices: p.yaml")
    with pytest.raises(NotInThisVersion, match=said):
        checked(tmp_path, change, body)


@pytest.mark.parametrize(("engine", "known"), [("vLLM", "vllm"), ("vlmm", "vllm"), ("llama.cpp", "llamacpp")])
def test_an_engine_whose_name_is_misspelt_is_told_how_it_is_called(engine, known, tmp_path):
    arm = "tokenizer: reference}}\neval"
    with pytest.raises(UsageError, match=f"v: no engine is known as '{engine}'; did you mean '{known}'"):
        checked(tmp_path, (arm, arm.replace("reference", f"reference, engine: {engine}")))
    checked(tmp_path, (arm, arm.replace("reference", "reference, engine: lmdeploy")))


def test_a_rule_on_drift_needs_what_its_servers_list(tmp_path):
    rule = "0.02}, {metric: drift.top1_agreement, min: 0.9}"
    with pytest.raises(UsageError, match=r"of v, which are not requested\. Give each served arm `prompt_logprobs"):
        checked(tmp_path, ("0.02}", rule))
    listed = "{{endpoint: 'http://127.0.0.1:800{}/v1', model: m, tokenizer: reference, prompt_logprobs: {}}}"
    text = GATE.replace("{model: reference}", listed.format(1, 20)).replace("0.02}", rule)
    file = tmp_path / "gate.yaml"
    for k, said in ((5, "the 5 likeliest tokens"), (-1, "every token")):
        old = "{endpoint: 'http://127.0.0.1:8000/v1', model: m, tokenizer: reference}"
        assert old in text
        file.write_text(text.replace(old, listed.format(0, k)))
        gate = load_gate_file(file)
        check_served(gate, [])
        [line] = rests_on_lists(SimpleNamespace(arms=(gate.baseline, *gate.variants)))  # type: ignore[arg-type]
        assert said in line
        assert ("closes from above" in line) == (k > 0)


def test_lists_are_not_held_against_what_is_generated_here(tmp_path):
    (tmp_path / "gate.yaml").write_text(
        GATE.replace("tokenizer: reference}", "tokenizer: reference, prompt_logprobs: 20}").replace(
            "0.02}", "0.02}, {metric: drift.kl_mean, max: 1}"
        )
    )
    with pytest.raises(NotInThisVersion, match="baseline is generated here and others are served"):
        check_served(load_gate_file(tmp_path / "gate.yaml"), [])


def test_servers_that_a_run_starts_are_not_looked_at_in_turns(tmp_path):
    (tmp_path / "gate.yaml").write_text(
        GATE.replace("v: {endpoint: 'http://127.0.0.1:8000/v1', model: m, tokenizer: reference}", STARTED).replace(
            "gate: {", "gate: {stop: early, "
        )
    )
    with pytest.raises(NotInThisVersion, match="run one after the other"):
        check_served(load_gate_file(tmp_path / "gate.yaml"), [])


def test_draws_here_and_at_a_server_are_not_held_together(tmp_path):
    with pytest.raises(UsageError, match="samples here and"):
        checked(tmp_path, ("evalsets:", "generation: {temperature: 0.7}\nevalsets:"))


@pytest.mark.parametrize(
    ("endpoint", "leaves"),
    [
        ("http://127.0.0.1:1/v1", []), ("http://localhost/v1", []), ("http://[::1]:8/v1", []),
        ("https://api.example.org/v1", ["api.example.org"]), ("http://10.0.0.7:8000/v1", ["10.0.0.7"]),
    ],
)  # fmt: skip
def test_prompts_that_leave_the_machine_are_told_of(endpoint, leaves):
    arms = [ArmSpec(name=name, model="m", served=Served(endpoint=endpoint)) for name in ("baseline", "v")]
    told = list(leaves_the_machine(arms))
    assert len(told) == len(leaves)
    assert all(host in line for host, line in zip(leaves, told, strict=True))


FOUR = """\
version: 1
baseline: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
variants:
  a: {endpoint: 'http://127.0.0.1:8001/v1', model: m}
  b: {endpoint: 'http://127.0.0.1:8002/v1', model: m}
  c: {endpoint: 'http://127.0.0.1:8003/v1', model: m, arm: both}
four_arm: {quantization: a, speculation: b}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
"""


def test_four_arms_may_be_served_and_what_users_wait_under_load_is_not_theirs_to_judge(tmp_path):
    def check(text: str) -> None:
        (tmp_path / "gate.yaml").write_text(text)
        gate = as_run(as_four_arms(load_gate_file(tmp_path / "gate.yaml")))
        check_drafted(gate)
        check_served_alike(gate)
        check_served(gate, [])

    check(FOUR)
    check(FOUR.replace("speculation: b}", "speculation: b, drafting: {b: {proposed: 9, accepted: 5}}}"))
    for more, told in (("concurrency: 64", "a 16, b 64, c 16"), ("stream: false", "a true, b false, c true")):
        with pytest.raises(UsageError, match=told):  # b would be charged for the queue, or wait for what comes whole
            check(FOUR.replace("8002/v1', model: m", f"8002/v1', model: m, {more}"))
    check(FOUR.replace("model: m", "model: m, concurrency: 64"))
    with pytest.raises(NotInThisVersion, match="nothing states the load"):
        check(f"{FOUR}slo: {{ttft: 0.5}}\n")
    with pytest.raises(NotInThisVersion, match="with four served arms"):
        check(FOUR.replace("0.02}", "0.02}, {metric: drift.top1_agreement, min: 0.9}"))


def test_an_arm_that_is_said_to_speculate_is_known_to_be(tmp_path):
    (tmp_path / "gate.yaml").write_text(FOUR)
    variants = load_gate_file(tmp_path / "gate.yaml").variants
    assert [arm.served.drafts for arm in variants if arm.served] == [False, False, True]
    assert [arm.drafts for arm in variants] == [False, False, True]
