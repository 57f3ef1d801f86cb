"""A stored run's drift by place: the right tokens counted, clustered errors, and silence where nothing is known."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text
from tokenizers import Tokenizer
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import IntegrityError, UsageError
from qualgate.pipeline import run_drift
from qualgate.pipeline.run_drift import DriftNumbers, drift_report
from qualgate.quant.model_files import read_files
from qualgate.quant.tokenizer_files import tokenizer_content
from qualgate.refmodel import PATH
from qualgate.report.drift import drift_lines
from qualgate.scoring.reasoning import split
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.store.made import make_identity, make_plan, make_results

WRONG = {"int8": 0.0, "int2": 0.2}
OF_OLD = {"int8"}  # as a version stored it that kept a whole answer's agreement alone
END = 2.0  # KL that a token of each place is given
TOOL, KEY, DIGIT, ELSEWHERE = 1.0, 0.5, 0.25, 0.0625
KINDS = ("thought", "tool_name", "json_key", "digit", "end", "elsewhere")


def place_of(said: str, start: int, stop: int) -> float:
    """The KL that a token of these characters gets. Made-up answers hold one call of four keys, or digits."""
    if start >= len(said):
        return END

    def touches(before: str, what: str) -> bool:
        at = said.find(before + what)
        return at >= 0 and start < at + len(before + what) and stop > at + len(before)

    if touches('"name": "', "send_email"):
        return TOOL
    if any(f'"{key}":' in said and touches('"', key) for key in ("name", "arguments", "to", "subject")):
        return KEY
    return DIGIT if any(c in "0123456789" for c in said[start:stop]) else ELSEWHERE


def differs_at(case_id: str, kl: float) -> bool:
    """Whether the made-up models would say other tokens: at keys always, at names and ends in every second case."""
    return kl == KEY or (kl in (TOOL, END) and case_id[-1] in "02468")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The shipped model's tokenizer, in a folder that a test may spoil a copy of."""
    target = tmp_path_factory.mktemp("model") / "m"
    target.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(PATH / name, target / name)
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory, folder) -> tuple[str, str, dict]:
    """A store and its run of 20 cases a set, and each variant's KL by case."""
    tokenizer = Tokenizer.from_file(str(PATH / "tokenizer.json"))
    plan = make_plan(cases=20, wrong=WRONG, families=("tool_calls", "arithmetic"))
    plan = replace(plan, arms=tuple(replace(arm, model=str(folder)) for arm in plan.arms))
    identities = {
        arm.name: replace(make_identity(arm.name), tokenizer=tokenizer_content(read_files(folder))) for arm in plan.arms
    }
    plan = replace(plan, identities=identities)
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'q.db'}"
    answers = {case.id: case.body["answer"] for item in plan.evalsets for case in item.cases}
    spans, given = {}, defaultdict(dict)
    with open_store(url) as store:
        record = runs.begin(store, plan)
        for result, scores in make_results(plan, WRONG):
            completions, drifts = [], []
            for one in result.completions:
                said = answers[one.key.case_id]  # none spoiled: what a key is in broken JSON is no matter here
                encoded = tokenizer.encode(said, add_special_tokens=False)
                ids = (*encoded.ids, tokenizer.token_to_id("<|im_end|>"))
                flat = (0.0,) * len(ids)
                completions.append(replace(one, text=said, token_ids=ids, logprobs=flat, margins=flat))
                if one.key.arm == "baseline":
                    spans[one.key.case_id] = (said, [*encoded.offsets, (len(said), len(said))])
            for drift in result.drifts:
                said, offsets = spans[drift.key.case_id]
                kl = tuple(place_of(said, *span) for span in offsets)
                given[drift.key.arm][drift.key.case_id] = kl
                differs = tuple(at for at, value in enumerate(kl) if differs_at(drift.key.case_id, value))
                old = drift.key.arm in OF_OLD
                drifts.append(replace(drift, kl=kl, top1_agreement=(len(kl) - len(differs)) / len(kl),
                                      top1_differs=None if old else differs))  # fmt: skip
            told = replace(result, identity=identities[result.arm], completions=tuple(completions),
                           drifts=tuple(drifts))  # fmt: skip
            runs.record(store, record.run_id, told, scores)
    return url, record.run_id, given


def test_the_whole_is_the_mean_with_cases_as_clusters(made):
    url, run_id, given = made
    found = drift_report(url, run_id)
    assert [one.variant for one in found.variants] == ["int8", "int2"]
    for one in found.variants:
        every = given[one.variant].values()
        flat = [value for kl in every for value in kl]
        mean = sum(flat) / len(flat)
        error = sqrt(len(every) / (len(every) - 1) * sum(sum(v - mean for v in kl) ** 2 for kl in every)) / len(flat)
        assert (one.overall.positions, one.overall.clusters, one.answers, one.silent) == (len(flat), 40, 40, 0)
        assert one.overall.mean == pytest.approx(mean)
        assert one.overall.mean_error == pytest.approx(error)
        assert one.overall.max == END
        assert one.overall.p99 == pytest.approx(np.percentile(flat, 99))


def test_drift_counts_at_the_places_it_was_put(made):
    found = drift_report(*made[:2])
    assert found.unavailable == ""
    flat = [value for kl in made[2]["int2"].values() for value in kl]
    where = found.variants[1].where
    assert found.variants[1].unplaced == 0
    assert tuple(where) == KINDS
    assert (where["end"].positions, where["end"].mean, where["end"].max) == (40, END, END)
    assert where["tool_name"].mean == TOOL
    assert where["tool_name"].positions == flat.count(TOOL) > 0
    assert where["json_key"].positions == flat.count(KEY) > 0
    assert where["json_key"].max == KEY
    assert where["elsewhere"].max == ELSEWHERE
    assert where["elsewhere"].positions == flat.count(ELSEWHERE)


def test_the_share_of_the_same_most_likely_token_stands_beside_it(made):
    found = drift_report(*made[:2]).variants[1]
    for kind, value in (("tool_name", TOOL), ("json_key", KEY), ("digit", DIGIT), ("end", END)):
        by_case = {case: [not differs_at(case, v) for v in kl if v == value] for case, kl in made[2]["int2"].items()}
        by_case = {case: same for case, same in by_case.items() if same}
        flat = [one for same in by_case.values() for one in same]
        share, n = sum(flat) / len(flat), len(by_case)
        spread = sum(sum(one - share for one in same) ** 2 for same in by_case.values())
        at = found.where[kind]
        assert at.same_top == pytest.approx(share)
        assert at.same_top_error == pytest.approx(sqrt(n / (n - 1) * spread) / len(flat))
        assert at.same_top_lower <= share <= at.same_top_upper
        assert at.same_top_lower < at.same_top_upper
    assert found.where["digit"].same_top == 1
    assert found.where["json_key"].same_top == 0
    assert 0 < found.where["end"].same_top < 1
    flat = [not differs_at(case, value) for case, kl in made[2]["int2"].items() for value in kl]
    assert found.overall.same_top == pytest.approx(sum(flat) / len(flat))


def test_a_store_from_before_knows_the_share_of_whole_answers_and_says_so_of_places(made):
    old, new = drift_report(*made[:2]).variants
    assert [one.same_top for one in old.where.values()] == [None] * len(KINDS)
    assert [one.same_top_error for one in old.where.values()] == [None] * len(KINDS)
    assert [one.mean for one in old.where.values()] == [one.mean for one in new.where.values()]
    assert (old.overall.same_top, old.overall.same_top_error) == pytest.approx(
        (new.overall.same_top, new.overall.same_top_error)
    )
    shown = CliRunner().invoke(app, ["drift", "--store", made[0]]).stdout
    before, after = shown.split("int2:")
    assert before.count("not stored") == 6  # five places, and the line that says what to do
    assert "not stored" not in after
    said = json.loads(CliRunner().invoke(app, ["drift", "--store", made[0], "--json"]).stdout)
    assert said["variants"][0]["where"]["end"]["same_top"] is None
    assert said["variants"][1]["where"]["json_key"]["same_top"] == 0


def test_the_table_fits_a_terminal_of_80_columns(made):
    found = drift_report(*made[:2])
    wide = DriftNumbers(
        positions=1_234_567, clusters=9, mean=1.2345678e-05, mean_error=1.2345678e-06, p99=1.2345678e-05,
        p99_lower=1.2345678e-06, p99_upper=1.2345678e-05, max=1.2345678e-05, same_top=0.99999, same_top_error=0.012345,
        same_top_lower=0.9, same_top_upper=1.0,
    )  # fmt: skip
    widest = replace(found.variants[1], overall=wide, where=dict.fromkeys(KINDS, wide), certified=1.234567e-05)
    lines = drift_lines(replace(found, variants=(*found.variants, widest)))
    assert [line for line in lines if len(line) > 80] == []
    shown = "1,234,567 1.235e-05 ± 1.23e-06 1.235e-05 1.235e-05 100.00 ± 1.23 %"
    assert any(line.split() == ["end", "of", "turn", *shown.split()] for line in lines)


@pytest.mark.parametrize(("thought", "which"), [(6, "answer"), (600, "thought")])  # characters of each answer
def test_thoughts_are_a_place_and_what_parts_in_them_is_counted(made, monkeypatch, thought, which):
    monkeypatch.setattr(
        run_drift, "apart", lambda body, said: replace(split(said, "none"), spans=((0, min(thought, len(said))),))
    )
    with open_store(made[0]) as store:
        units = runs.evidence(store, made[1]).variants[1].units
    found = drift_report(*made[:2]).variants[1]
    tokenizer = Tokenizer.from_file(str(PATH / "tokenizer.json"))
    with open_store(made[0]) as store:
        said = queries.baseline_said(store, made[1])
    within = {  # tokens that begin within it
        question: sum(start < thought for start, _ in tokenizer.encode(one.text, add_special_tokens=False).offsets)
        for question, one in said.items()
    }
    expected = {"thought": 0, "answer": 0}
    for unit in units:
        if unit.first_divergence is not None:
            in_thought = unit.first_divergence < within[unit.key.evalset, unit.key.case_id, unit.key.repeat]
            expected["thought" if in_thought else "answer"] += 1
    assert (found.parted_in_thought, found.parted_in_answer) == tuple(expected.values())
    assert expected[which] == max(expected.values()) > 0
    assert found.where["thought"].positions == sum(within.values())
    shown = "\n".join(drift_lines(drift_report(*made[:2])))
    assert f"{expected['thought']} part in the thought, {expected['answer']} behind it" in shown
    assert "thoughts" in shown


def test_text_and_json_say_it(made):
    shown = CliRunner().invoke(app, ["drift", "--store", made[0]])
    assert shown.exit_code == 0, shown.output
    for word in ("int2: 40 answers, 40 clusters", "tool names", "JSON keys", "digits", "end of turn", "elsewhere"):
        assert word in shown.output
    said = json.loads(CliRunner().invoke(app, ["drift", "--store", made[0], "--run", made[1], "--json"]).stdout)
    assert said["unavailable"] is None
    assert said["variants"][0]["where"]["end"]["mean"] == END
    assert "thoughts" not in shown.output, "there are none"
    assert CliRunner().invoke(app, ["drift", "--store", made[0]]).stdout == shown.stdout


def test_without_the_runs_tokenizer_it_says_why_and_keeps_the_rest(made, folder):
    whole = drift_report(*made[:2])
    config, other = folder / "tokenizer.json", folder.with_name("away")
    kept = config.read_bytes()
    spoiled = json.loads(kept)
    spoiled["added_tokens"] = spoiled["added_tokens"][:-1]
    try:
        config.write_text(json.dumps(spoiled))
        changed = drift_report(*made[:2])
        config.write_text("{")
        broken = drift_report(*made[:2])
    finally:
        config.write_bytes(kept)
    folder.rename(other)
    try:
        gone = drift_report(*made[:2])
        shown = CliRunner().invoke(app, ["drift", "--store", made[0]])
        said = json.loads(CliRunner().invoke(app, ["drift", "--store", made[0], "--json"]).stdout)
    finally:
        other.rename(folder)
    for found, why in ((changed, "is not the one the run used"), (broken, "tokenizer.json"), (gone, "not there")):
        assert why in found.unavailable
        assert [one.where for one in found.variants] == [{}, {}]
        assert [one.overall for one in found.variants] == [one.overall for one in whole.variants]
    assert "where it drifts cannot be shown" in shown.output
    assert "tool names" not in shown.output
    assert said["variants"][0]["where"] is None


def test_evidence_that_was_changed_is_not_shown(made, tmp_path):
    copy = tmp_path / "q.db"
    shutil.copy(made[0].removeprefix("sqlite:///"), copy)
    with open_store(f"sqlite:///{copy}") as store, store.write() as connection:
        connection.execute(text("update units set kl = zeroblob(length(kl)) where arm = 'int2' and case_id like '%7'"))
    with pytest.raises(IntegrityError, match="int2"):
        drift_report(f"sqlite:///{copy}", None)
    with pytest.raises(UsageError, match="no run"):
        drift_report(made[0], "no-such-run")
