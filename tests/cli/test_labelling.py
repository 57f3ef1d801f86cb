"""`label` and `labels`: set on the terminal, shown by `flips` of the next run, exported, and proposed."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from datetime import date

import pytest
import yaml

from qualgate.config.rules import QuarantineEntry
from qualgate.errors import Exit
from qualgate.records import UnitKey
from qualgate.report.label_list import proposals, proposals_yaml, records_csv
from qualgate.store import labels, queries
from qualgate.store.database import open_store
from qualgate.text.escaping import visible
from tests.command_line import qualgate
from tests.report.reading import ATTACK
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper

VARIANT = "int4-g32"
WRONG = {VARIANT: 0.5}
TODAY = date(2026, 12, 1)


@pytest.fixture
def made(tmp_path) -> tuple[str, str, list[UnitKey]]:
    """A store's URL, a run in it, and its changed answers."""
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with open_store(url) as store:
        run = make_run(store, make_plan(cases=4, wrong=WRONG), WRONG)
        changed = [UnitKey(VARIANT, *case) for case in sorted(queries.flipped_answers(store, run, VARIANT))]
    return url, run, changed


def asked(url: str, *words: str, code: int = 0) -> str:
    done = qualgate(*words, "--store", url, COLUMNS="200")
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def set_label(url: str, run: str, unit: UnitKey, word: str, *more: str, code: int = 0) -> str:
    words = () if "--name" in more else ("--name", "Ada")
    return asked(url, "label", run, unit.question, word, "--variant", unit.arm, *words, *more, code=code)


def stored(url: str) -> list[labels.Label]:
    with open_store(url) as store:
        return list(labels.labels(store))


def test_a_label_is_set_listed_and_removed(made):
    url, run, (unit, *_) = made
    assert "no labels yet" in asked(url, "labels")
    told = set_label(url, run, unit, "wrong-reference", "--note", "two are right")
    [label] = stored(url)
    line = f"labelled wrong reference by Ada on {label.created_at[:10]}: two are right"
    assert told == f"{unit.question}: {line}\n"
    for words in ((), ("--run", run), ("--variant", VARIANT)):
        assert asked(url, "labels", *words) == f"{unit.question}  run {run}, {VARIANT}\n  {line}\n"
    assert asked(url, "labels", "--variant", "int8", "--json") == "[]\n"
    assert json.loads(asked(url, "labels", "--json")) == [asdict(label)]
    assert json.loads(asked(url, "labels", "--format", "jsonl")) == asdict(label)
    assert set_label(url, run, unit, "none") == f"{unit.question}: label removed\n"
    assert asked(url, "labels", "--json") == "[]\n"


def test_a_comment_is_exported_with_the_labels_shown_by_flips_and_proposes_nothing(made):
    url, run, (unit, *_) = made
    set_label(url, run, unit, "flaky")
    line = set_label(url, run, unit, "comment", "--note", "=twice this week")
    assert line.startswith(f"{unit.question}: commented by Ada on 20")
    assert line in asked(url, "labels").replace(f"  run {run}, {VARIANT}\n ", ":")
    assert [row["label"] for row in json.loads(asked(url, "labels", "--json"))] == ["flaky", "comment"]
    [_, row] = csv.DictReader(io.StringIO(asked(url, "labels", "--format", "csv")))
    assert (row["label"], row["note"], row["name"]) == ("comment", "'=twice this week", "Ada")
    assert len(json.loads(asked(url, "labels", "--propose", "--json"))["quarantine"]) == 1
    assert ": =twice this week" in asked(url, "flips", run, VARIANT, "--limit", "99")


def test_flips_show_the_label_and_the_next_run_s_the_earlier_one(made):
    url, run, changed = made
    set_label(url, run, changed[0], "acceptable", "--note", "shorter")
    [label] = stored(url)
    with open_store(url) as store:
        later = make_run(store, make_plan(cases=4, wrong=WRONG), WRONG)
    line = f"labelled acceptable by Ada on {label.created_at[:10]}"
    case, seen = (label.evalset, label.case_id, label.repeat), 0
    for way in ("--gained", "--limit=20"):
        here, there = (asked(url, "flips", one, VARIANT, way) for one in (run, later))
        listed = json.loads(asked(url, "flips", later, VARIANT, way, "--json"))
        found = [flip for flip in listed if (flip["evalset"], flip["case_id"], flip["repeat"]) == case]
        assert here.count(f"{line}: shorter") == len(found)
        assert there.count(f"{line} (run {run}, {VARIANT}): shorter") == len(found)
        seen += len(found)
        assert all(flip["labels"] == {"own": None, "other": asdict(label), "comments": []} for flip in found)
    assert seen


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("label", "RUN", "CASE", "good", "--variant", VARIANT, "--name", "Ada"), "'good' is no label"),
        (("label", "RUN", "CASE", "flaky", "--variant", VARIANT, "--name", " "), "needs the name"),
        (("label", "RUN", "CASE", "comment", "--variant", VARIANT, "--name", "Ada"), "a comment needs a text"),
        (("label", "RUN", "CASE", "none", "--variant", VARIANT, "--name", "Ada"), "none to remove"),
        (("label", "RUN", "CASE", "flaky", "--variant", "int3", "--name", "Ada"), "It has: int4-g32."),
        (("label", "RUN", "no-case", "flaky", "--variant", VARIANT, "--name", "Ada"), "has no case 'no-case'"),
        (("labels", "--run", "no-run"), "no run 'no-run' in this store"),
        (("labels", "--format", "xml"), "not one of terminal, json, jsonl, csv"),
        (("labels", "--propose", "--format", "csv"), "--propose prints YAML"),
    ],
)
def test_mistakes_are_told_with_the_next_step(made, words, why):
    url, run, (unit, *_) = made
    words = tuple({"RUN": run, "CASE": unit.case_id}.get(word, word) for word in words)
    assert why in " ".join(asked(url, *words, code=Exit.USAGE).split())
    assert stored(url) == []


def test_a_changed_label_is_an_integrity_failure(made):
    url, run, (unit, *_) = made
    set_label(url, run, unit, "regression")
    with open_store(url) as store:
        tamper(store, "update sealed set body_json = replace(body_json, 'regression', 'acceptable')")
    for words in (("labels",), ("flips", run, VARIANT, "--limit", "99")):
        assert "is not what was recorded" in asked(url, *words, code=Exit.INTEGRITY)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_the_csv_is_a_formula(made, tmp_path, begin):
    url, run, (unit, *_) = made
    note = f'{begin}HYPERLINK("http://x"), 1'
    with open_store(url) as store:
        label = labels.set_label(store, run, unit, "flaky", name=f"{begin}cmd|' /C calc'!A0", note=f"a\n{note}")
    out = tmp_path / "labels.csv"
    asked(url, "labels", "--format", "csv", "--out", str(out))
    [row] = csv.DictReader(io.StringIO(out.read_text(encoding="utf-8")))
    assert set(row) == set(asdict(label))
    assert row["case_hash"] == label.case_hash
    assert not row["name"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert row["note"] == visible(label.note)
    [row] = csv.DictReader(
        io.StringIO(records_csv(labels.Label, [replace(label, note=note)]))
    )  # a beginning that is stripped when set
    assert row["note"] == f"'{visible(note)}"


def test_hostile_notes_and_names_are_text_in_every_format(made):
    url, run, (unit, *_) = made
    set_label(url, run, unit, "flaky", "--name", f"A{ATTACK}".replace("\x00", ""), "--note", ATTACK.replace("\x00", ""))
    for words in (("--format", "terminal"), ("--format", "csv"), ("--format", "jsonl"), ("--json",), ("--propose",)):
        shown = asked(url, "labels", *words)
        assert visible(shown) == shown
    assert json.loads(asked(url, "labels", "--json")) == [asdict(one) for one in stored(url)]


def test_labels_propose_references_to_correct_and_cases_for_quarantine(made, tmp_path):
    url, run, (first, second, third, *_) = made
    assert asked(url, "labels", "--propose") == "# No label proposes a change.\n"
    set_label(url, run, first, "wrong-reference")
    set_label(url, run, second, "flaky", "--note", 'answers "7" or {8}: # both')
    set_label(url, run, third, "regression")
    out = tmp_path / "proposed.yaml"
    text = asked(url, "labels", "--propose")
    asked(url, "labels", "--propose", "--out", str(out))
    assert out.read_text(encoding="utf-8") == text
    assert f"#   {first.evalset} ({first.evalset}.jsonl): {first.case_id}\n" in text
    [entry] = yaml.safe_load(text)["quarantine"]
    assert (entry["case"], entry["evalset"], entry["owner"]) == (second.case_id, second.evalset, "Ada")
    assert entry["reason"] == 'flaky: answers "7" or {8}: # both'
    QuarantineEntry.model_validate({**entry, "expires": str(entry["expires"])})
    machine = json.loads(asked(url, "labels", "--propose", "--json"))
    assert machine["references"] == {first.evalset: [first.case_id]}
    assert machine["quarantine"] == [{**entry, "expires": str(entry["expires"])}]
    set_label(url, run, second, "acceptable")
    assert "quarantine" not in asked(url, "labels", "--propose")


def test_a_hostile_case_id_is_proposed_as_it_is(made):
    url, run, (unit, *_) = made
    set_label(url, run, unit, "flaky")
    [label] = stored(url)
    odd = "🙂 \u202e\x1b[2K ::error::x \"'\\ \x85\u2028 ]}{, #"
    hostile = replace(label, case_id=odd, evalset=odd, name=odd, note=odd)
    text = proposals_yaml(proposals([hostile], TODAY))
    assert visible(text) == text
    [entry] = yaml.safe_load(text)["quarantine"]
    assert (entry["case"], entry["evalset"], entry["owner"]) == (odd, odd, odd)
    assert entry["expires"] == date(2026, 12, 31)
