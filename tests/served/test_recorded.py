"""What real servers sent is read: vLLM, llama.cpp, `transformers serve`, SGLang (`recorded/README.md`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.served.retold import RECORDED, retold

IGNORED = ["temperature", "stop"]  # by `transformers serve`, which takes them and says nothing


def ran_again(name: str, folder: Path) -> dict:
    for file in (*RECORDED.glob("*.jsonl"), RECORDED / "orders.yaml", RECORDED / "sums.yaml"):
        shutil.copy(file, folder)
    gate = yaml.safe_load((RECORDED / f"{name}.yaml").read_text())
    with retold(name, "baseline") as baseline, retold(name, "fewer") as fewer:
        # One request at a time: whether streams are doubted three times in a row must not depend on who is faster.
        gate["baseline"] |= {"endpoint": baseline.address, "concurrency": 1}
        gate["variants"]["fewer"] |= {"endpoint": fewer.address, "concurrency": 1}
        (folder / "gate.yaml").write_text(yaml.safe_dump(gate))
        done = qualgate("run", "gate.yaml", "--json", cwd=folder)
    assert done.returncode == Exit.UNDECIDED, done.stderr  # by three cases of each kind
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "engine", "cases", "tokens", "fewer_right", "listed"),
    [
        ("vllm", "vllm 0.32.0", 6, 254, {"tool_call.correct": 3, "numeric": 2}, True),
        ("vllm-chat", "vllm 0.32.0", 3, 128, {"numeric": 2}, False),
        ("llamacpp", "llamacpp", 6, 254, {"tool_call.correct": 3, "numeric": 3}, False),
        ("llamacpp-chat", "llamacpp", 3, 128, {"numeric": 3}, False),
        ("transformers", "transformers", 3, 128, {"numeric": 1}, False),
        ("sglang", "sglang 0.5.23", 6, 254, {"tool_call.correct": 3, "numeric": 2}, True),
        ("sglang-chat", "sglang 0.5.23", 6, 254, {"tool_call.correct": 3, "numeric": 2}, False),
    ],
)
def test_every_answer_of_a_real_server_is_read_whole(name, engine, cases, tokens, fewer_right, listed, tmp_path):
    """The baseline's are right: the model answers these cases so in process, too. listed: the log-probs of prompts, by
    which drift is read and answers begin as the baseline's."""
    found = ran_again(name, tmp_path)
    arms = {arm["name"]: arm for arm in found["arms"]}
    assert set(arms) == {"baseline", "fewer", "baseline@aa"}
    for arm in arms.values():
        assert (arm["done"], arm["errors"]) == (cases, 0)
        assert arm["footprint"]["generation"]["engine"] == engine
        accused = [probe["name"] for probe in arm["footprint"]["probes"] if probe["fault"]]
        assert accused == (IGNORED if name == "transformers" and arm["footprint"]["probes"] else [])
    assert arms["baseline"]["footprint"]["generation"]["tokens"] == tokens
    [verdict] = found["verdicts"]
    quality = {one["metric"]: one for one in verdict["comparisons"] if one["metric"] in fewer_right}
    assert {metric: one["baseline"] for metric, one in quality.items()} == dict.fromkeys(fewer_right, 1.0)
    assert {metric: round(one["n"] * one["variant"]) for metric, one in quality.items()} == fewer_right
    agreement = [one["n"] for one in verdict["comparisons"] if one["metric"] == "drift.top1_agreement"]
    assert agreement == ([6] if listed else [])
    made = arms["fewer"]["footprint"]["generation"]
    assert (made["forked"], made["otherwise"]) == (1, 0) if listed else True, "one leaves the baseline's; none differs"
