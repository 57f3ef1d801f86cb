"""A gate file with a judge, end to end: asked after generation, decided again and scored again without it."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.judges import Scripted, as_server
from tests.run.commands import rows
from tests.served.scripted import as_json, scripted

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
    return Scripted(worth=lambda text: float(text.endswith(f" {number + 1}")))(body)


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Path:
    cases = [
        {"id": f"s{n}", "messages": [{"role": "user", "content": f"{n} + 1?"}], "max_new_tokens": 16, "answer": "x"}
        for n in range(CASES)
    ]
    write_evalset(tmp_path, cases, "sums")
    labels = [{"id": f"p{n}", "question": f"user: {n} + 1?", "a": f"It is {n + 1}", "b": f"It is {n}", "preferred": "a"}
              for n in range(30)]  # fmt: skip
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-4711")
    return tmp_path


def write(folder: Path, **servers) -> None:
    addresses = {role: server.address for role, server in servers.items()}
    (folder / "gate.yaml").write_text(GATE.format(**addresses))


def words(done) -> dict[str, str]:
    return {one["variant"]: one["word"] for one in json.loads(done.stdout)["verdicts"]}


def test_a_judge_blocks_what_loses_approves_what_does_not_and_is_not_needed_again(workspace, monkeypatch):
    with scripted(otherwise=as_server(judging)) as judge:
        with ExitStack() as open_:
            arms = {name: open_.enter_context(scripted(otherwise=answering(wrong)))
                    for name, wrong in (("baseline", 0), ("same", 2), ("worse", 50))}  # fmt: skip
            write(workspace, **arms, judge=judge)
            done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
        assert done.returncode == Exit.BLOCK, done.stderr + done.stdout
        assert words(done) == {"same": "approve", "worse": "block"}
        same, _ = json.loads(done.stdout)["verdicts"]
        assert any("agrees with 30 of 30 decided labels" in line for line in same["reasons"])
        assert {headers["Authorization"] for _, headers, _ in judge.asked} == {"Bearer sk-judge-4711"}
        assert len(judge.asked) == len(rows(workspace, "SELECT * FROM judgements")) == 2 * (30 + 2 + 50)
        assert b"sk-judge-4711" not in (workspace / "qualgate.db").read_bytes()
        # Another rubric is another judge, which a stored run can be put before.
        text = (workspace / "gate.yaml").read_text().replace("The right sum wins.", "A wrong sum loses.")
        (workspace / "gate.yaml").write_text(text)
        unjudged = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
        assert unjudged.returncode == Exit.UNDECIDED
        assert "its labelled sample was not judged whole: qualgate rescore" in unjudged.stdout
        rejudged = qualgate("rescore", "gate.yaml", cwd=workspace)
        assert rejudged.returncode == Exit.BLOCK
        assert "UNDECIDED -> BLOCK" in rejudged.stdout
        assert len(judge.asked) == 4 * (30 + 2 + 50)
    monkeypatch.delenv("JUDGE_KEY")  # from here on neither judge nor arms are there
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert (again.returncode, words(again)) == (Exit.BLOCK, words(done)), again.stderr
    scored = qualgate("rescore", "gate.yaml", cwd=workspace)
    assert scored.returncode == Exit.BLOCK, scored.stderr
    assert "judge.win" in qualgate("report", cwd=workspace).stdout


def test_what_the_judge_takes_is_foretold_counts_in_the_budget_and_stops_the_run_which_goes_on_with_more(
    workspace, monkeypatch
):
    def judged(body):
        said = {"message": {"role": "assistant", "content": judging(body)}}
        return as_json({"choices": [said], "usage": {"prompt_tokens": 200, "completion_tokens": 10}})

    def write_with(tokens: int) -> None:
        write(workspace, **arms, judge=judge)
        text = (workspace / "gate.yaml").read_text() + f"budget: {{max_tokens_total: {tokens}, currency: EUR}}\n"
        (workspace / "gate.yaml").write_text(text.replace("judge: {", "judge: {price: {prompt: 100, answer: 1000}, "))

    with ExitStack() as open_:
        arms = {name: open_.enter_context(scripted(otherwise=answering(wrong)))
                for name, wrong in (("baseline", 0), ("same", 2), ("worse", 50))}  # fmt: skip
        judge = open_.enter_context(scripted(otherwise=judged))
        write_with(20_000)
        poor = qualgate("run", "gate.yaml", "--json", "--record", "said", cwd=workspace)
        assert poor.returncode == Exit.INFRASTRUCTURE
        told = " ".join(poor.stderr.split())
        assert "of `max_tokens_total: 20000` tokens, and the next request to the judge may take" in told
        asked = [len(one.asked) for one in (judge, *arms.values())]
        assert 2 < asked[0] < 2 * (30 + 2 + 50)
        assert qualgate("rescore", "gate.yaml", cwd=workspace).returncode == Exit.USAGE  # the run is to go on first
        assert len(judge.asked) == asked[0]
        write_with(100_000)
        rich = qualgate("run", "gate.yaml", "--json", "--record", "said", cwd=workspace)
        assert (rich.returncode, words(rich)) == (Exit.BLOCK, {"same": "approve", "worse": "block"}), rich.stderr
        assert [len(one.asked) for one in arms.values()] == asked[1:]  # what was answered is kept
        foretold = json.loads(qualgate("plan", "gate.yaml", "--json", cwd=workspace).stdout)["servers"]
        write_with(36_000)  # another judge comes on top of what the run took
        (workspace / "gate.yaml").write_text((workspace / "gate.yaml").read_text().replace("sum wins.", "sum wins!"))
        again = qualgate("rescore", "gate.yaml", cwd=workspace)
        assert again.returncode == Exit.INFRASTRUCTURE
        assert "and the next request to the judge may take" in " ".join(again.stderr.split())
        [(text,)] = rows(workspace, "SELECT judging_json FROM runs")
        assert json.loads(text)["requests"] == len(judge.asked)
    took = json.loads(rich.stdout)["judging"]
    assert took["requests"] == 2 * (30 + 2 + 50)
    assert (took["prompt"], took["answer"]) == (took["requests"] * 200, took["requests"] * 10)
    assert took["cost"] == pytest.approx(took["requests"] * 0.03)
    assert foretold["judge"]["at_most"]["requests"] == 2 * (30 + 2 * CASES)
    counts = {name: took[name] for name in ("requests", "prompt", "answer")}
    tokens = took["requests"] * 210
    assert foretold["judge"]["expected"] == {**counts, "tokens": tokens, "cost": pytest.approx(took["cost"])}
    assert foretold["at_most"]["tokens"] > foretold["judge"]["at_most"]["tokens"] > foretold["expected"]["tokens"]
    # Told again, judge and arms cost nothing and are asked nothing; from here on none of them is there.
    monkeypatch.delenv("JUDGE_KEY")
    write_with(1)
    replayed = qualgate("run", "gate.yaml", "--json", "--replay", "said", cwd=workspace)
    assert (replayed.returncode, words(replayed)) == (Exit.BLOCK, words(rich)), replayed.stderr
    assert json.loads(replayed.stdout)["judging"] == took | {"replayed": True}
    assert len(spending(workspace)) == 1
    assert "sk-judge-4711" not in "".join(file.read_text() for file in workspace.glob("said/*/*"))
    shutil.rmtree(workspace / "said" / "the judge")  # as in a recording of a version that did not keep it
    unjudged = qualgate("run", "gate.yaml", "--store", "sqlite:///other.db", "--replay", "said", cwd=workspace)
    assert unjudged.returncode == Exit.INFRASTRUCTURE
    assert "nothing is in it of what the judge was asked" in " ".join(unjudged.stderr.split())
    # Another judge of what was told again is asked today, and each time on top of the last.
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-4711")
    run = json.loads(replayed.stdout)["run"]
    with scripted(otherwise=judged) as judge:
        for times, rubric in enumerate(("A wrong sum loses.", "No sum is right."), start=1):
            write_with(100_000)
            text = (workspace / "gate.yaml").read_text().replace("The right sum wins.", rubric)
            (workspace / "gate.yaml").write_text(text)
            again = qualgate("rescore", "gate.yaml", "--run", run, cwd=workspace)
            assert again.returncode == Exit.UNDECIDED, again.stderr  # its gate file's servers are not a recording
            then, since = spending(workspace)
            assert "the judge" not in then
            assert f"the judge {times * tokens:,} tokens" in since


def spending(folder: Path) -> list[str]:
    """What the newest run's report says that its servers took."""
    told = " ".join(qualgate("report", cwd=folder).stdout.split())
    return re.findall(r"asked of servers .*? included: .*?(?=asked of servers|$)", told)


def test_a_judge_that_does_not_serve_its_model_is_told_before_anything_is_generated(workspace):
    with ExitStack() as open_:
        arms = {name: open_.enter_context(scripted(otherwise=answering(0))) for name in ("baseline", "same", "worse")}
        judge = open_.enter_context(scripted(models=as_json({"data": [{"id": "other"}]})))
        write(workspace, **arms, judge=judge)
        done = qualgate("run", "gate.yaml", cwd=workspace)
        assert not any(arm.asked for arm in arms.values())
    assert done.returncode == Exit.USAGE
    assert "judge: " in done.stderr
    assert "serves no model 'm'" in done.stderr
    assert "sk-judge" not in done.stderr
