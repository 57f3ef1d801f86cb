"""`preferences`, and `gate` once people have compared: from the store to the verdict, by the front door."""

from __future__ import annotations

import csv
import io
import json

import pytest

from qualgate.records import Policy, Rule
from qualgate.store import preferences
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.store.made import make_plan, make_run
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


def compare(url: str, run: str, name: str, wins, variant: str = VARIANT) -> None:
    """A reviewer compares the pairs of the rule's set. wins: of the variant, by the pair's number."""
    with open_store(url) as store:
        pairs = [pair for pair in preferences.differing(store, run) if pair.unit.arm == variant]
        pairs = [pair for pair in pairs if pair.unit.evalset == "json_extract"]
        for number, pair in enumerate(pairs):
            if (win := wins(number)) is not None:
                first = (win == 1) == pair.variant_first(run, name)
                word = "tie" if win == 0.5 else "first" if first else "second"
                preferences.prefer(store, run, pair.unit, word, name=name)


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
    compare(url, run, "Ada", lambda number: 0)
    assert "people have yet to compare" in gate(url, run)[0]["reason"]
    compare(url, run, "Bob", lambda number: 1)
    found = gate(url, run)[0]
    assert (found["lost"], found["gained"], found["status"]) == (0, 0, "proven")


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
