"""A gate file with a judge, end to end: asked after generation, decided again and scored again without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.judges import Scripted as ScriptedJudge
from tests.run.commands import rows
from tests.served.scripted import Scripted, as_json, scripted

CASES = 80
GATE = """\
version: 1
baseline: {{endpoint: '{baseline}', model: m, stream: false}}
variants:
  same: {{endpoint: '{same}', model: m, stream: false}}
  worse: {{endpoint: '{worse}', model: m, stream: false}}
evalsets: [./sums.yaml]
judge: {{endpoint: '{judge}', model: m, api_key_env: JUDGE_KEY, rubric: The right sum wins., labels: labels.jsonl}}
gate:
  rules: [{{metric: format.nonempty, max_drop: 0.15}}, {{metric: judge.win, max_drop: 0.10}}]
  uncounted: allow
  noise_floor: false
store: sqlite:///qualgate.db
workers: {{count: 1}}
"""


def asked(body) -> int:
    return int(body["messages"][-1]["content"].split()[0])


def answering(wrong: int):
    """A server that is wrong on the first cases."""

    def answer(body):
        number = asked(body)
        said = f"The sum is {number + 1 + (number < wrong)}"
        return as_json({"choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 5, "completion_tokens": 5}})  # fmt: skip

    return answer


def judging(body) -> str:
    number = int(body["messages"][1]["content"].split("user: ")[-1].split()[0])
    return ScriptedJudge(worth=lambda text: float(text.endswith(f" {number + 1}")))(body)


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_KEY", "sk-judge-4711")
        yield


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    cases = [
        {"id": f"s{n}", "messages": [{"role": "user", "content": f"{n} + 1?"}], "max_new_tokens": 16, "answer": "x"}
        for n in range(CASES)
    ]
    write_evalset(folder, cases, "sums")
    labels = [{"id": f"p{n}", "question": f"user: {n} + 1?", "a": f"It is {n + 1}", "b": f"It is {n}", "preferred": "a"}
              for n in range(30)]  # fmt: skip
    (folder / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    return folder


def write(folder: Path, tokens: int | None = None, rubric: str = "The right sum wins.", **servers: Scripted) -> None:
    """tokens: of the budget, with the judge's price."""
    text = GATE.format(**{role: server.address for role, server in servers.items()})
    text = text.replace("The right sum wins.", rubric)
    if tokens is not None:
        text += f"budget: {{max_tokens_total: {tokens}, currency: EUR}}\n"
        text = text.replace("judge: {", "judge: {price: {prompt: 100, answer: 1000}, ")
    (folder / "gate.yaml").write_text(text)


def words(done) -> dict[str, str]:
    return {one["variant"]: one["word"] for one in json.loads(done.stdout)["verdicts"]}


REQUESTS = 2 * (30 + 2 + 50)  # the labelled sample and what differs, in both orders
PRICED = {"usage": {"prompt_tokens": 200, "completion_tokens": 10}}


def judged(body):
    return as_json({"choices": [{"message": {"role": "assistant", "content": judging(body)}}], **PRICED})


@pytest.fixture(scope="module")
def ran(workspace) -> dict[str, Any]:
    """A run that stopped when its budget was spent, the same gone on with, and its plan. None of its servers is there
    any more."""
    with ExitStack() as open_:
        servers = {name: open_.enter_context(scripted(otherwise=answering(wrong)))
                   for name, wrong in (("baseline", 0), ("same", 2), ("worse", 50))}  # fmt: skip
        servers["judge"] = judge = open_.enter_context(scripted(otherwise=judged))
        write(workspace, 20_000, **servers)
        poor = qualgate("run", "gate.yaml", "--json", cwd=workspace)
        asked = [len(one.asked) for one in servers.values()]
        assert qualgate("rescore", "gate.yaml", cwd=workspace).returncode == Exit.USAGE  # the run is to go on first
        assert len(judge.asked) == asked[-1]
        write(workspace, 100_000, **servers)
        rich = qualgate("run", "gate.yaml", "--json", cwd=workspace)
        assert [len(one.asked) for one in servers.values()] == [*asked[:-1], REQUESTS]  # what was answered is kept
        plan = qualgate("plan", "gate.yaml", "--json", cwd=workspace)
        assert {headers["Authorization"] for _, headers, _ in judge.asked} == {"Bearer sk-judge-4711"}
    return {"poor": poor, "rich": rich, "plan": json.loads(plan.stdout)["servers"], "asked": asked[-1],
            "servers": servers}  # fmt: skip


def test_what_the_judge_takes_counts_in_the_budget_and_stops_the_run_which_goes_on_with_more(workspace, ran):
    assert ran["poor"].returncode == Exit.INFRASTRUCTURE
    told = " ".join(ran["poor"].stderr.split())
    assert "of `max_tokens_total: 20000` tokens, and the next request to the judge may take" in told
    assert 2 < ran["asked"] < REQUESTS
    assert ran["rich"].returncode == Exit.BLOCK, ran["rich"].stderr
    assert len(rows(workspace, "SELECT * FROM sealed WHERE kind = 'judgement'")) == REQUESTS
    assert b"sk-judge-4711" not in (workspace / "qualgate.db").read_bytes()


def test_a_judge_blocks_what_loses_approves_what_does_not_and_is_not_needed_again(workspace, ran):
    assert words(ran["rich"]) == {"same": "approve", "worse": "block"}
    same, _ = json.loads(ran["rich"].stdout)["verdicts"]
    assert any("agrees with 30 of 30 decided labels" in line for line in same["reasons"])
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert (again.returncode, words(again)) == (Exit.BLOCK, words(ran["rich"])), again.stderr
    assert "judge.win" in qualgate("report", cwd=workspace).stdout


def test_what_it_took_is_told_and_a_plan_foretells_it(ran):
    took, foretold = json.loads(ran["rich"].stdout)["judging"], ran["plan"]
    assert took["requests"] == REQUESTS
    assert (took["prompt"], took["answer"]) == (REQUESTS * 200, REQUESTS * 10)
    assert took["cost"] == pytest.approx(REQUESTS * 0.03)
    assert foretold["judge"]["at_most"]["requests"] == 2 * (30 + 2 * CASES)
    counts = {name: took[name] for name in ("requests", "prompt", "answer")}
    tokens = REQUESTS * 210
    assert foretold["judge"]["expected"] == {**counts, "tokens": tokens, "cost": pytest.approx(took["cost"])}
    assert foretold["at_most"]["tokens"] > foretold["judge"]["at_most"]["tokens"] > foretold["expected"]["tokens"]


def test_another_rubric_is_another_judge_which_a_stored_run_can_be_put_before(workspace, ran, tmp_path):
    folder, servers = Path(shutil.copytree(workspace, tmp_path, dirs_exist_ok=True)), dict(ran["servers"])
    with scripted(otherwise=judged) as servers["judge"]:
        write(folder, 100_000, "A wrong sum loses.", **servers)
        unjudged = qualgate("gate", "gate.yaml", "--json", cwd=folder)
        assert unjudged.returncode == Exit.UNDECIDED
        assert "its labelled sample was not judged whole: qualgate rescore" in unjudged.stdout
        rejudged = qualgate("rescore", "gate.yaml", cwd=folder)
        assert (rejudged.returncode, "UNDECIDED -> BLOCK" in rejudged.stdout) == (Exit.BLOCK, True), rejudged.stderr
        assert len(servers["judge"].asked) == REQUESTS
        write(folder, 36_000, "Any sum wins.", **servers)  # another judge comes on top of what the run took
        poor = qualgate("rescore", "gate.yaml", cwd=folder)
        assert poor.returncode == Exit.INFRASTRUCTURE
        assert "and the next request to the judge may take" in " ".join(poor.stderr.split())
        write(folder, 100_000, "A wrong sum loses.", **servers)
    [(text,)] = rows(folder, "SELECT judging_json FROM runs")
    assert json.loads(text)["requests"] == 2 * REQUESTS
    assert qualgate("rescore", "gate.yaml", cwd=folder).returncode == Exit.BLOCK, "the judge is not needed again"
