"""`qualgate compare`: two servers looked at side by side, and nothing decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.served.scripted import Reply, as_json, scripted, text_piece

CASES = 24


def answering(wrong: int = 0):
    """A server's answers: right but to the first so many cases."""

    def answer(body: dict[str, Any]) -> Reply:
        number = int(body["prompt"].split()[1]) if body["prompt"].startswith("say ") else 0
        text = "?" if number < wrong else str(number)
        return as_json({**text_piece(text, "stop"), "usage": {"prompt_tokens": 4, "completion_tokens": 1}})

    return answer


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    rows = [
        {"id": f"c{number}", "task": "say", "prompt": f"say {number}", "max_new_tokens": 4, "answer": str(number)}
        for number in range(CASES)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own.yaml").write_text("name: own\nversion: '1'\nmetrics: [exact_match]\n")
    return tmp_path


def compare(workspace: Path, one: str, other: str, *more: str):
    return qualgate("compare", one, other, "--evalset", "./own.yaml", *more, cwd=workspace)


TWO = as_json({"data": [{"id": "m"}, {"id": "n"}]})


def test_both_are_asked_each_with_its_own_key_scored_and_shown_side_by_side(workspace, monkeypatch):
    monkeypatch.setenv("ONE_KEY", "sk-canary-1")
    monkeypatch.setenv("OTHER_KEY", "sk-canary-2")
    keys = ("--api-key-env", "ONE_KEY", "--api-key-env", "OTHER_KEY")
    with scripted(otherwise=answering()) as one, scripted(models=TWO, otherwise=answering(wrong=5)) as two:
        unsaid = compare(workspace, one.address, two.address, *keys)
        assert (unsaid.returncode, two.asked) == (Exit.USAGE, [])
        assert "2 models ('m, n')" in unsaid.stderr
        assert "--model-b NAME" in unsaid.stderr
        sent = [{headers.get("Authorization") for headers in server.looked} for server in (one, two)]
        assert sent == [{"Bearer sk-canary-1"}, {"Bearer sk-canary-2"}]
        assert "canary" not in unsaid.stdout + unsaid.stderr
        done = compare(workspace, one.address, two.address, "--model-b", "n")
        assert {body["model"] for _, _, body in two.asked} == {"n"}
    assert done.returncode == Exit.UNDECIDED, done.stderr
    said = " ".join(done.stdout.split())
    assert "no policy, no verdict" in said
    assert "exact_match [own]" in said
    assert "5 of 24 scores: right before, wrong now" in said
    assert "own/c0" in said  # an example of what flipped
    assert "max_drop" not in said  # a margin that nobody chose is not shown
    store, run_id = "sqlite:///qualgate-compare/qualgate.db", said.split("run ", 1)[1].split()[0]
    again = qualgate("report", "--store", store, "--run", run_id, "--json", cwd=workspace)
    [verdict] = json.loads(again.stdout)["verdicts"]
    [rule] = verdict["comparisons"]
    assert (rule["baseline"], rule["variant"], rule["lost"], rule["gained"]) == (1.0, 19 / 24, 5, 0)
    assert rule["lower"] < rule["difference"] < rule["upper"]
    assert rule["status"] == "undecided"


def test_two_that_are_alike_earn_no_approval_either_now_or_later(workspace):
    with scripted(otherwise=answering()) as one, scripted(otherwise=answering()) as two:
        done = compare(workspace, one.address, two.address, "--json")
    assert done.returncode == Exit.UNDECIDED
    found = json.loads(done.stdout)
    assert found["trial"] == "first look: 24 of 24 cases"
    again = qualgate("gate", "qualgate-compare/compare.yaml", "--run", found["run"], cwd=workspace)
    assert again.returncode == Exit.UNDECIDED, again.stderr


def test_a_first_look_at_a_few_cases_that_is_incomplete_goes_on_by_the_same_command(workspace):
    busy, answers, is_busy = as_json({"error": "busy"}, 503, Retry_After="9999"), answering(), [True]
    with scripted(otherwise=answering()) as one, scripted(otherwise=lambda b: busy if is_busy else answers(b)) as two:
        first = compare(workspace, one.address, two.address, "--limit", "3", "--json")
        assert first.returncode == Exit.INFRASTRUCTURE, first.stdout + first.stderr
        is_busy.clear()
        again = compare(workspace, one.address, two.address, "--limit", "3", "--json")
        assert {body["prompt"] for _, _, body in two.asked} <= {f"say {number}" for number in range(CASES)}
    assert again.returncode == Exit.UNDECIDED, again.stderr
    assert "resumed run" in again.stderr
    assert json.loads(again.stdout)["trial"] == "first look: 3 of 24 cases"


def test_an_address_without_its_version_is_told_so_and_nothing_else(workspace):
    with scripted(models=as_json({}, 404)) as one:
        done = compare(workspace, one.address, one.address)
    assert done.returncode == Exit.USAGE
    assert done.stderr.rstrip().endswith("such as http://127.0.0.1:8000/v1.")


def test_one_key_goes_to_two_hosts_only_where_that_is_said(workspace):
    done = compare(workspace, "http://127.0.0.1:1/v1", "http://localhost:1/v1", "--api-key-env", "sk-canary")
    assert done.returncode == Exit.USAGE
    assert "two hosts" in done.stderr
    assert "canary" not in done.stdout + done.stderr  # what should be a name may be a key


NAMED = ["--model-a", "m", "--model-b", "m"]
BAD = [
    (["nowhere", "http://127.0.0.1:1/v1"], [], "is the API's address"),
    (["http://u:secret@h/v1", "http://127.0.0.1:1/v1"], [], "a user or a password"),
    (["http://127.0.0.1:1/v1"] * 2, ["--api-key-env", "sk-secret"], "must be the NAME"),
    (["http://127.0.0.1:1/v1"] * 2, [*NAMED], "the same model of the same server"),
    (["http://127.0.0.1:1/v1", "http://LocalHost:1/v1"], [*NAMED], "the same model of the same server"),
    (["http://127.0.0.1:1/v1"] * 2, ["--evalset", "no_such_set"], "no_such_set"),
    (["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"], [*NAMED, "--limit", "0"], "--limit 0"),
    (["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"], ["--tokens", "10"], "or more"),
    (["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"], ["--tokens", "9000", "--alpha", "0.6"], "below 0.5"),
    (["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"], ["--tokens", "9000", "--limit", "3"], "scores none"),
]  # fmt: skip


@pytest.mark.parametrize(("addresses", "more", "said"), BAD)
def test_what_cannot_be_compared_is_refused(addresses, more, said, workspace):
    done = compare(workspace, *addresses, *more)
    assert done.returncode == Exit.USAGE, done.stdout
    assert said in " ".join(done.stderr.split())
    assert "secret" not in done.stderr


def test_a_budget_of_tokens_gives_a_statement_which_names_servers_that_do_not_draw(workspace):
    with scripted(otherwise=answering()) as one, scripted(otherwise=answering(wrong=CASES)) as two:
        done = compare(workspace, one.address, two.address, "--tokens", "3000", "--json")
        asked = len(one.asked), len(two.asked)
    assert done.returncode == Exit.UNDECIDED, done.stderr
    made = json.loads(done.stdout)
    assert made == json.loads((workspace / "qualgate-compare" / "statement.json").read_text())
    assert made["outcome"] == "cannot tell"
    assert [line.partition(":")[0] for line in made["faults"]] == ["A", "B"]
    assert tuple(made["asked"]["spent"][name]["requests"] for name in "AB") == asked
    assert "answers to each of each server" in done.stderr


def test_without_evalset_and_tokens_nothing_is_asked(workspace):
    done = qualgate("compare", "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", cwd=workspace)
    assert done.returncode == Exit.USAGE
    assert "--tokens N compares answers without it" in done.stderr


def test_nobody_there_ends_with_13_and_the_address_is_said_once(workspace):
    with scripted() as gone:
        pass
    done = compare(workspace, gone.address, "http://127.0.0.1:1/v1")
    assert done.returncode == Exit.INFRASTRUCTURE
    assert done.stderr.count(gone.address) == 1


def test_one_server_twice_is_refused_in_the_words_of_the_command_and_nothing_is_written(workspace):
    done = compare(workspace, *["http://127.0.0.1:1/v1"] * 2, *NAMED)
    assert "URL_A and URL_B are the same model of the same server ('m' at http://127.0.0.1:1/v1)" in done.stderr
    assert "noise_floor" not in done.stderr
    assert not (workspace / "qualgate-compare").exists()
