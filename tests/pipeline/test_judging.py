"""Answers put before a judge: asked once in both orders, kept raw, and nothing is approved on a judge that was not
measured."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import text as sql

from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.evidence import known
from qualgate.pipeline.judging import ask_judge, judges_of, own_judge, too_few_labels, with_judgements, with_sample
from qualgate.pipeline.served_arms import leaves_the_machine
from qualgate.pipeline.spending import judging
from qualgate.records import ArmSpec, Budget, Policy, Price, Rule, Spent
from qualgate.scoring.preference.asking import version
from qualgate.served.faults import BudgetSpent
from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.plain import policy_to_json
from tests.judges import Scripted, as_server, judge_at, says
from tests.served.scripted import as_json, scripted
from tests.store.made import make_plan, make_run

EXACT = Policy(rules=(Rule(metric="exact_match", max_drop=0.1),))
WRONG = {"int8": 0.0, "int2-g32": 0.22}
GATE = """\
version: 1
baseline: {{model: ./models/support}}
variants: {{int8: {{quantize: int4}}, int2-g32: {{quantize: int4}}}}
evalsets: [{{name: arithmetic, cases: external}}]
judge: {{endpoint: '{address}', model: m, rubric: The right sum wins., labels: labels.jsonl{more}}}
gate:
  rules:
    - {{metric: exact_match, max_drop: 0.10}}
    - {{metric: judge.win, max_drop: 0.05}}
store: sqlite:///qualgate.db
"""


def is_right(answer: str) -> float:
    """Whether every line of the sum adds up."""
    try:
        return float(
            all(eval(line.partition("=")[0]) == int(line.partition("=")[2]) for line in answer.split("\n")[:-1])
        )
    except (SyntaxError, ValueError):
        return 0.0


FAIR = Scripted(worth=is_right)


def write_labels(folder, count: int = 40) -> None:
    rows = []
    for number in range(count):
        right, wrong = f"{number}+1={number + 1}\nAnswer", f"{number}+1={number + 2}\nAnswer"
        a, b, preferred = (right, wrong, "a") if Random(number).random() < 0.5 else (wrong, right, "b")
        rows.append({"id": f"p-{number}", "question": f"{number} + 1?", "a": a, "b": b, "preferred": preferred})
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[Path, str]:
    """A store with a run that no judge has seen."""
    path = tmp_path_factory.mktemp("stored") / "qualgate.db"
    with open_store(f"sqlite:///{path}") as store:
        plan = make_plan(cases=120, wrong=WRONG, families=("arithmetic",), policy=EXACT)
        return path, make_run(store, plan, WRONG)


@pytest.fixture(scope="module")
def fairly(tmp_path_factory, stored) -> tuple[Path, str]:
    """A copy of it in which a fair judge was asked about everything, and the gate file's address of that judge."""
    folder = tmp_path_factory.mktemp("fairly")
    shutil.copy(stored[0], folder / "qualgate.db")
    with open_store(f"sqlite:///{folder / 'qualgate.db'}") as store, scripted(otherwise=as_server(FAIR)) as server:
        ask(store, stored[1], gate_of(folder, server.address))
        return folder / "qualgate.db", server.address


def gate_of(folder, address: str, more: str = ""):
    if not (folder / "labels.jsonl").exists():
        write_labels(folder)
    (folder / "gate.yaml").write_text(GATE.format(address=address, more=more), encoding="utf-8")
    gate = load_gate_file(folder / "gate.yaml", files=False)
    return replace(gate, policy=with_sample(gate.policy, gate.labels))


def judged(store, run_id: str, gate):
    return with_judgements(store, known(store, run_id), gate.policy)


def words(evidence, gate) -> dict[str, str]:
    return {one.variant: one.word for one in decide_plain(evidence, gate.policy)}


def of_judge(evidence, gate, variant: str):
    (verdict,) = [one for one in decide_plain(evidence, gate.policy) if one.variant == variant]
    return verdict, next(one for one in verdict.comparisons if one.metric == "judge.win")


@pytest.fixture
def made(tmp_path, stored):
    shutil.copy(stored[0], tmp_path / "qualgate.db")
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        yield store, stored[1], tmp_path


@pytest.fixture
def asked(tmp_path, stored, fairly):
    """Store, run and gate file of a run that a fair judge, who is gone, was asked about."""
    shutil.copy(fairly[0], tmp_path / "qualgate.db")
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        yield store, stored[1], gate_of(tmp_path, fairly[1])


def ask(store, run_id, gate, judge=FAIR):
    return ask_judge(store, known(store, run_id), gate.policy, gate.labels)


def test_each_pair_is_asked_in_both_orders_once_and_equal_answers_are_ties_that_nobody_is_asked_about(made):
    store, run_id, folder = made
    with scripted(otherwise=as_server(FAIR)) as server:
        gate = gate_of(folder, server.address)
        assert ask(store, run_id, gate)
        texts: dict[tuple[str, str], str] = {}
        with store.read() as connection:
            for arm, case, said in connection.execute(sql("select arm, case_id, text from units")):
                texts[arm, case] = said
        differing = sum(texts[arm, case] != texts["baseline", case] for arm, case in texts if arm != "baseline")
        assert 0 < differing < 240
        assert len(server.asked) == 2 * (differing + 40)
        assert {path for path, _, _ in server.asked} == {"/v1/chat/completions"}
        assert all(body["temperature"] == 0 and body["model"] == "m" for _, _, body in server.asked)
        assert ask(store, run_id, gate)  # nothing is missing
        assert len(server.asked) == 2 * (differing + 40)
    evidence = judged(store, run_id, gate)  # its server is gone
    verdict, found = of_judge(evidence, gate, "int8")
    assert (found.status, found.n, verdict.word) == ("proven", 120, "approve")
    verdict, found = of_judge(evidence, gate, "int2-g32")
    assert (found.status, verdict.word) == ("broken", "block")
    assert (found.lost or 0) - (found.gained or 0) > 12
    assert any("agrees with 40 of 40 decided labels" in line for line in verdict.reasons)


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (Scripted(worth=lambda answer: Random(answer).random()), "not surely over its floor of 70%: it decides"),
        (lambda body: says("tie"), "agrees with 0 of 40 decided labels"),
    ],
)
def test_below_its_floor_a_judge_neither_approves_nor_blocks(made, judge, said):
    store, run_id, folder = made
    with scripted(otherwise=as_server(judge)) as server:
        gate = gate_of(folder, server.address)
        ask(store, run_id, gate)
    evidence = judged(store, run_id, gate)
    for variant in WRONG:
        _, found = of_judge(evidence, gate, variant)
        assert (found.status, said in found.reason) == ("undecided", True)


def test_replies_outside_the_form_are_null_and_said(made):
    store, run_id, folder = made

    def chatty(body):
        return FAIR(body) if "+ 1?" in body["messages"][1]["content"] else "Answer A is better."

    with scripted(otherwise=as_server(chatty)) as server:
        gate = gate_of(folder, server.address)
        ask(store, run_id, gate)
    _, found = of_judge(judged(store, run_id, gate), gate, "int2-g32")
    assert found.status == "undecided"
    assert "outside its form in the first order" in found.reason
    assert "Answer A is better." in found.reason


def test_a_request_that_the_server_refuses_is_null_and_the_others_are_judged(made):
    store, run_id, folder = made
    refused = []

    def refusing(body):
        if not refused and "+ 1?" not in body["messages"][1]["content"]:
            refused.append(body)
            return as_json({"error": "the prompt is too long"}, 400)
        return as_server(FAIR)(body)

    with scripted(otherwise=refusing) as server:
        gate = gate_of(folder, server.address)
        ask(store, run_id, gate)
    found = [of_judge(judged(store, run_id, gate), gate, variant)[1] for variant in WRONG]
    assert sum("the judge could not say for 1 of 120 pairs (no reply 1" in one.reason for one in found) == 1


def test_what_came_before_its_server_failed_is_kept_and_only_the_rest_is_asked_again(made, monkeypatch):
    store, run_id, folder = made
    monkeypatch.setattr("qualgate.served.client.TRIES", 1)
    monkeypatch.setattr("qualgate.served.judging.BATCH", 16)
    count = []

    def failing(body):
        count.append(body)
        return as_json({"error": "out of order"}, 404) if len(count) > 40 else as_server(FAIR)(body)

    with scripted(otherwise=failing) as server:
        gate = gate_of(folder, server.address)
        with pytest.raises(UsageError, match="it has no /v1/chat/completions"):
            ask(store, run_id, gate)
        assert "was not judged" in of_judge(judged(store, run_id, gate), gate, "int8")[1].reason
        server.otherwise, before = as_server(FAIR), len(server.asked)
        ask(store, run_id, gate)
        asked = [json.dumps(body) for _, _, body in server.asked]
    answered = asked[:40]
    assert not set(answered) & set(asked[before:])
    assert words(judged(store, run_id, gate), gate)["int2-g32"] == "block"


def test_it_stops_when_it_is_told_to_and_goes_on_later(made):
    store, run_id, folder = made
    with scripted(otherwise=as_server(FAIR)) as server:
        gate = gate_of(folder, server.address)
        stops = iter([False, True])
        assert not ask_judge(store, known(store, run_id), gate.policy, gate.labels, stop=lambda: next(stops))
        assert len(server.asked) == 64
        assert ask(store, run_id, gate)


def test_what_it_takes_counts_in_the_runs_ledger_even_when_that_is_lost(made):
    store, run_id, folder = made

    def counted(gate) -> Spent:
        with judging(gate, folder / "ledger", store, run_id) as ledger:
            assert ask_judge(store, known(store, run_id), gate.policy, gate.labels, ledger=ledger)
        return told()

    def told() -> Spent:
        spent = queries.run_summary(store, run_id).judging
        return spent

    with scripted(otherwise=as_server(FAIR)) as server:
        gate = gate_of(folder, server.address)
        with pytest.raises(BudgetSpent, match="the next request to the judge"):
            counted(replace(gate, budget=Budget(max_tokens=60_000)))
        some = told()
        assert 40_000 < some.tokens <= 60_000
        assert some.requests == len(server.asked)
        shutil.rmtree(folder / "ledger")
        with pytest.raises(BudgetSpent):
            counted(replace(gate, budget=Budget(max_tokens=60_000)))
        assert (told(), len(server.asked)) == (some, some.requests)
        assert counted(gate).requests == len(server.asked) > some.requests


def test_a_price_of_the_judge_is_no_part_of_the_policy(made):
    plain, priced = (gate_of(made[2], "http://127.0.0.1:1/v1", more).policy for more in ("", ", price: {prompt: 3}"))
    assert priced.judge
    assert priced.judge.served.price == Price(prompt=3.0)
    assert policy_to_json(plain) == policy_to_json(priced)


@pytest.mark.parametrize(
    "change",
    [
        "json_set(body_json, '$.reply', '{\"verdict\": \"tie\"}') where not body_json ->> 'swapped'",
        "replace(body_json, 'preferred\\\": 1.0', 'preferred\\\": 0.0') where part like 'label:%'",
        "json_set(body_json, '$.asked', 'f') where part like 'int2-g32:%'",
    ],
)
def test_a_reply_that_was_changed_in_the_store_is_no_evidence(asked, change):
    store, run_id, gate = asked
    with store.write() as connection:
        connection.execute(sql("drop trigger sealed_no_update"))
        connection.execute(sql(f"update sealed set body_json = {change}"))
    assert set(words(judged(store, run_id, gate), gate).values()) == {"invalid"}


def test_labels_that_were_taken_out_of_the_store_leave_the_judge_unmeasured(asked):
    store, run_id, gate = asked
    with store.write() as connection:
        connection.execute(sql("drop trigger sealed_no_delete"))
        connection.execute(sql("delete from sealed where part like 'label:%/p-1#%' or part like 'label:%/p-2#%'"))
    assert "its labelled sample was not judged whole" in of_judge(judged(store, run_id, gate), gate, "int8")[1].reason


def test_another_rubric_or_another_sample_is_another_judge_that_was_not_asked(asked):
    store, run_id, gate = asked
    rubric = replace(gate, policy=replace(gate.policy, judge=replace(gate.policy.judge, rubric="The longer one wins.")))
    assert version(rubric.policy.judge) != version(gate.policy.judge)
    write_labels(gate.path.parent, 41)
    sample = replace(gate, policy=with_sample(gate.policy, gate.labels))
    for other in (rubric, sample):
        _, found = of_judge(judged(store, run_id, other), other, "int8")
        assert (found.status, "not judged whole" in found.reason) == ("undecided", True)


@pytest.mark.parametrize(("count", "told"), [(2, 1), (8, 1), (9, 0)])
def test_a_sample_on_which_even_perfect_agreement_shows_nothing_is_told_of_before_a_run(tmp_path, count, told):
    """Of 8 decided labels 0.7 ** 8 is over 0.05, of 9 it is not."""
    write_labels(tmp_path, count)
    lines = [*too_few_labels(Policy(rules=(), judge=judge_at(floor=0.7)), tmp_path / "labels.jsonl")]
    assert len(lines) == told
    assert all(f"prefer an answer to {count} questions" in line for line in lines)


def test_a_judge_that_is_called_as_an_arms_model_is_warned_of_and_prompts_that_go_to_it_are_told():
    arms = (ArmSpec(name="baseline", model="/models/Support-8B"), ArmSpec(name="awq", model="/models/support-8b-awq"))
    policy = Policy(rules=(), judge=judge_at("https://judge.example/v1", model="org/support-8b"))
    (line,) = own_judge(policy, arms)
    assert "called as the model of baseline" in line
    assert [*leaves_the_machine(judges_of(policy))] == [
        "prompts leave this machine: those of every evalset here are sent to judge.example"
    ]
    assert not [*own_judge(replace(policy, judge=judge_at(model="judge-70b")), arms)]
