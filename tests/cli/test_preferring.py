"""`preferences`, and `gate` once people have compared: from the store to the verdict, by the front door."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import Policy, Rule
from qualgate.report import blind
from qualgate.store import audit, decisions, preferences, queries
from qualgate.store.database import open_store
from qualgate.store.signing.keys import make_key
from tests.command_line import qualgate
from tests.store import made as store_made
from tests.store.made import make_plan, make_run, said
from tests.store.tampering import tamper

VARIANT, OTHER = "int8", "mxfp4"
WRONG = {VARIANT: 0.4, OTHER: 0.4}
RULES = (
    Rule(metric="tool_call.valid", evalset="tool_calls", max_drop=0.19),
    Rule(metric="people.win", evalset="json_extract", max_drop=0.05),
)


@pytest.fixture
def made(tmp_path, request, monkeypatch) -> tuple[str, str]:
    """A store's URL, and a run with a rule on what people prefer."""
    scorers = {"exact_match": "exact_match/1", "tool_call.valid": "tool_call/1"}  # that made the run's scores
    monkeypatch.setattr("qualgate.pipeline.staleness.scorer_versions", lambda: scorers)
    url = f"sqlite:///{tmp_path / 'q.db'}"
    policy = Policy(rules=RULES, reviewers=getattr(request, "param", 1), uncounted="allow")
    with open_store(url) as store:
        return url, make_run(
            store, make_plan(cases=60, wrong=WRONG, policy=policy, families=("tool_calls", "json_extract")), WRONG
        )


def compare(url: str, run: str, name: str, wins, variant: str = VARIANT, signed_in: str = "") -> None:
    """A reviewer compares the pairs of the rule's set. wins: of the variant, by the pair's number."""
    with open_store(url) as store:
        pairs = [pair for pair in preferences.differing(store, run) if pair.unit.arm == variant]
        pairs = [pair for pair in pairs if pair.unit.evalset == "json_extract"]
        for number, pair in enumerate(pairs):
            if (win := wins(number)) is not None:
                first = (win == 1) == pair.variant_first(run, signed_in or name)
                word = "tie" if win == 0.5 else "first" if first else "second"
                preferences.prefer(store, run, pair.unit, word, name=name, signed_in=signed_in)


def gate(url: str, run: str) -> tuple[dict, str, list[str]]:
    """The rule's comparison, the variant's verdict, and its reasons."""
    done = qualgate("gate", "--store", url, "--run", run, "--json")
    verdict = next(one for one in json.loads(done.stdout)["verdicts"] if one["variant"] == VARIANT)
    found = next(one for one in verdict["comparisons"] if one["metric"] == "people.win")
    return found, verdict["word"], verdict["reasons"]


def test_the_rule_is_undecided_until_people_have_compared_and_then_decides(made):
    url, run = made
    found, word, _ = gate(url, run)
    assert (word, found["status"]) == ("undecided", "undecided")
    assert "people have yet to compare" in found["reason"]
    compare(url, run, "Ada", lambda number: 0.5)
    found, _, reasons = gate(url, run)
    assert found["status"] == "proven"
    assert any(line.startswith("people: ") and "of 1 reviewer (" in line for line in reasons)


def test_people_s_losses_block(made):
    url, run = made
    compare(url, run, "Ada", lambda number: 0)
    with open_store(url) as store:
        lost = len(preferences.preferences(store, run))
    found, word, _ = gate(url, run)
    assert (found["lost"], found["gained"], found["n"]) == (lost, 0, 60)
    assert (found["status"], word) == ("broken", "block")


def test_a_reviewer_more_than_the_rule_asks_for_changes_no_verdict(made):
    url, run = made
    compare(url, run, "Ada", lambda number: 0)
    before = gate(url, run)[0]
    for name in ("Bob", "Cleo", "Dan"):
        compare(url, run, name, lambda number: 1)
    assert before["status"] == "broken"
    assert gate(url, run)[0] == before


@pytest.mark.parametrize("made", [2], indirect=True)
def test_where_two_must_compare_one_decides_nothing_and_a_contradiction_is_a_tie(made):
    url, run = made
    for typed in ("Ada", "Bob"):
        compare(url, run, typed, lambda number: 0)
    assert "people have yet to compare" in gate(url, run)[0]["reason"], "a typed name proves nobody"
    compare(url, run, "Cleo", lambda number: 1, signed_in="cleo@x.org")
    found = gate(url, run)[0]
    assert (found["lost"], found["gained"], found["status"]) == (0, 0, "proven")


def approve(url: str, run: str) -> decisions.Decision:
    with open_store(url) as store:
        stored = queries.run_summary(store, run).verdict(VARIANT)
        return decisions.append(store, run, VARIANT, said(stored), decisions.Seen(stored.sha256))


def test_an_approval_needs_a_verdict_on_the_votes_as_they_are_now(made):
    url, run = made
    compare(url, run, "Ada", lambda number: 0.5)
    gate(url, run)
    compare(url, run, "Ada", lambda number: 0)
    with pytest.raises(UsageError, match=f"votes changed since the verdict: qualgate gate --run {run}"):
        approve(url, run)
    assert "votes changed since the verdict" in qualgate("report", "--run", run, "--store", url, COLUMNS="200").stdout
    gate(url, run)
    assert approve(url, run).action == "approve"
    compare(url, run, "Bob", lambda number: 1)  # whom the rule does not ask any more
    gate(url, run)
    with open_store(url) as store:
        assert queries.run_summary(store, run).verdict(VARIANT).decision is not None


def test_a_signed_run_stands_while_people_look_and_compare_but_not_if_a_vote_is_removed(made, tmp_path, monkeypatch):
    url, run = made
    make_key(tmp_path / "key")
    monkeypatch.setenv("QUALGATE_KEY", str(tmp_path / "key"))
    compare(url, run, "Ada", lambda number: 0.5)
    with open_store(url) as store:
        audit.sign_run(store, run)
    assert gate(url, run)[0]["status"] == "proven"
    with open_store(url) as store:
        preferences.close(store, run, name="Ada")
        head = audit.head(store)
        audit.check_signed(store, run)
    compare(url, run, "Bob", lambda number: 1)
    assert gate(url, run)[0]["status"] == "proven"
    with open_store(url) as store:
        tamper(store, "delete from sealed where kind = 'preference' and name = 'ada' and part != 'closed'")
        with pytest.raises(IntegrityError, match="people's preferences are not what they were"):
            audit.check_signed(store, run)
        assert any("preferences" in line for line in audit.broken(store, (), head))


def test_tool_calls_that_differ_are_compared_though_no_text_does(made, monkeypatch):
    url, _ = made
    city = {True: '{"city": "Oslo", "n": 1}', False: '{"n": 1, "city": "Oslo"}'}

    def calling(job, known, wrong):
        """Every answer is the same text and a call; two of the variant's name another city."""
        result, scores = answered(job, known, wrong)
        said = {
            one.key: city[job.arm.is_baseline].replace("Oslo", "Rome")
            if one.key.case_id.endswith("7") and not job.arm.is_baseline
            else city[job.arm.is_baseline]
            for one in result.completions
        }
        called = tuple(replace(one, text="7", calls=(("weather", said[one.key]),)) for one in result.completions)
        none = {key: tuple(replace(one, value=0.0, verdict=False) for one in some) for key, some in scores.items()}
        return replace(result, completions=called), none

    answered = store_made.make_result
    monkeypatch.setattr(store_made, "make_result", calling)
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.1), RULES[1]), uncounted="allow")
    with open_store(url) as store:
        run = make_run(store, make_plan(cases=20, wrong={VARIANT: 0}, policy=policy, families=("json_extract",)), {})
        pairs = blind.pairs_to_compare(store, run)
        shown = blind.shown(store, run, pairs[0], "Ada")
    assert {pair.unit.case_id for pair in pairs} == {"json_extract-0007", "json_extract-0017"}
    both = {f'7\n\ncalls: [["weather", {{"city": "{name}", "n": 1}}]]' for name in ("Oslo", "Rome")}
    assert {shown.first, shown.second} == both
    assert "yet to compare 2 of 20 pairs" in gate(url, run)[0]["reason"]


def test_a_changed_preference_ends_with_14(made):
    url, run = made
    compare(url, run, "Ada", lambda number: 0.5)
    with open_store(url) as store:
        tamper(store, "update sealed set body_json = replace(body_json, '\"tie\"', '\"first\"') "
               "where kind = 'preference'")  # fmt: skip
    assert qualgate("gate", "--store", url, "--run", run).returncode == 14


def test_the_summary_as_text_json_and_csv(made):
    url, run = made
    assert "nobody has compared" in qualgate("preferences", run, "--store", url).stdout
    compare(url, run, "=Ada", lambda number: (1, 0, 0.5)[number % 3])
    compare(url, run, "Bob", lambda number: (1, 0, 0.5)[number % 3] if number < 9 else None)
    compare(url, run, "Bob", lambda number: 1, OTHER)
    text = qualgate("preferences", run, VARIANT, "--store", url, COLUMNS="200").stdout
    assert "Clopper" in text
    assert "Krippendorff's alpha 1.00" in text
    assert OTHER not in text
    both = json.loads(qualgate("preferences", run, "--store", url, "--json").stdout)
    assert [one["variant"] for one in both] == [VARIANT, OTHER]
    [body] = json.loads(qualgate("preferences", run, VARIANT, "--store", url, "--json").stdout)
    cases = body["to_compare"]
    assert body["wins"] + body["losses"] + body["ties"] == cases
    assert body["preferences"] == cases + 9
    assert body["rate"]["lower"] < 0.5 < body["rate"]["upper"]
    rows = list(csv.DictReader(io.StringIO(qualgate("preferences", run, VARIANT, "--store", url, "--csv").stdout)))
    assert len(rows) == cases + 9
    assert rows[0]["name"] == "'=Ada"
    assert qualgate("preferences", run, "nobody", "--store", url).returncode == 64
    assert qualgate("preferences", "no-run", "--store", url).returncode == 64
    assert qualgate("preferences", run, "--store", url, "--csv", "--json").returncode == 64
