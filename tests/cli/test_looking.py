"""`runs`, `flips` and `diff`: what a store holds, on the terminal and for machines."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest

from qualgate.errors import Exit
from qualgate.records import Policy, Trial
from qualgate.report.flip_list import print_flips
from qualgate.report.run_changes import Words, print_run_changes, run_changes
from qualgate.report.run_list import print_runs
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from qualgate.store.labels import UNLABELLED
from qualgate.text.escaping import visible
from tests.command_line import qualgate
from tests.report.reading import ATTACK
from tests.store.made import RULES, make_plan, make_run

BETTER, WORSE = {"int4-g32": 0.05}, {"int4-g32": 0.5}


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[str, str, str, str]:
    """A store's URL; a run, a later one of worse answers to more rules, and a trial."""
    url = f"sqlite:///{tmp_path_factory.mktemp('looking') / 'q.db'}"
    with open_store(url) as store:
        first = make_run(store, make_plan(cases=20, wrong=BETTER, policy=Policy(rules=RULES[:2])), BETTER)
        second = make_run(store, make_plan(cases=20, wrong=WORSE), WORSE)
        tried = replace(make_plan(cases=4, wrong=BETTER, policy=Policy(rules=RULES, trial=Trial(limit=4))), key="t")
        return url, first, second, runs.begin(store, tried).run_id


def asked(*words: str, url: str, code: int = 0) -> str:
    done = qualgate(*words, "--store", url, COLUMNS="100")
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_runs_are_listed_newest_first_with_their_verdicts_and_trials_by_name(stored):
    url, first, second, trial = stored
    shown = asked("runs", url=url)
    heads = [line.split()[0] for line in shown.splitlines() if "answers" in line]
    assert heads == [trial, second, first]
    assert re.search(rf"{trial}  .* UTC  trial, under way, or interrupted, 0 of 24 answers", shown)
    assert shown.count("int4-g32") == 3
    with open_store(url, create=False) as store:
        lines = json.loads(json.dumps([asdict(line) for line in queries.list_runs(store)]))
    assert json.loads(asked("runs", "--json", url=url)) == lines
    assert "2 older runs: --limit 3 shows all" in asked("runs", "--limit", "1", url=url)


def test_flips_show_prompt_reference_and_where_the_answers_part(stored):
    url, _, second, _ = stored
    with open_store(url, create=False) as store:
        (flip,) = queries.flips(store, second, "int4-g32", direction="lost", evalset="arithmetic", limit=1)
        counts = queries.flip_counts(store, second, "int4-g32")
        body = queries.case_detail(store, second, "int4-g32", "arithmetic", flip.case_id).body
    shown = asked("flips", second, "int4-g32", "--evalset", "arithmetic", "--limit", "1", url=url)
    lost = sum(one.lost for one in counts if one.evalset == "arithmetic")
    assert shown.startswith(f"int4-g32: {lost} of 20 scores: right before, wrong now")
    texts = [line.strip() for line in shown.splitlines()]
    assert f"user: {body['messages'][0]['content']}" in texts
    before, after = (" ".join(texts[texts.index(name) + 1 :]) for name in ("baseline", "variant"))
    common = before.partition("»")[0]
    assert "»" in before
    assert after.startswith(f"{common}»")
    assert before.partition("»")[2].split()[:1] != after.partition("»")[2].split()[:1]
    assert f"{lost - 1} more: --limit {lost} shows all" in shown
    (machine,) = json.loads(
        asked("flips", second, "int4-g32", "--evalset", "arithmetic", "--limit", "1", "--json", url=url)
    )
    assert machine == json.loads(
        json.dumps({**asdict(flip), "parts_in": "", "sha256": {}, "labels": asdict(UNLABELLED)})
    )
    assert (machine["reference"], machine["prompt"]) == (body["answer"], f"user: {body['messages'][0]['content']}")


def test_two_runs_differ_in_what_the_evidence_differs_in(stored):
    url, first, second, trial = stored
    found = run_changes(url, first, second)
    with open_store(url, create=False) as store:
        then, now = (runs.evidence(store, one).variants[0] for one in (first, second))
    before = {(unit.key, name): value for unit in then.units for name, value in unit.values.items()}
    after = {(unit.key, name): value for unit in now.units for name, value in unit.values.items()}
    scored = [key for key in before if not key[1].startswith("latency.")]
    expected = {(key.evalset, key.case_id, name) for key, name in scored if before[key, name] != after[key, name]}
    assert {(one.evalset, one.case_id, one.metric) for one in found.scores} == expected != set()
    assert sum(found.pairs[pair] for pair in found.pairs if pair[0] == "int4-g32") == len(scored)
    assert found.differs == tuple(f"rule {rule.id}: only in {second}" for rule in RULES[2:])
    shown = asked("diff", first, second, url=url)
    assert re.search(r"int4-g32 +undecided +block", shown)
    worse = sum(one.lost for one in found.scores if one.metric == "exact_match")
    assert f"int4-g32 exact_match: {worse} worse," in shown
    assert "baseline exact_match: the same, of 60 scores of both" in shown
    assert json.loads(asked("diff", first, second, "--json", url=url))["verdicts"][0]["after"] == "block"
    [flip] = found.flips
    with open_store(url, create=False) as store:
        lost = [
            {
                f"{one.evalset}/{one.case_id}"
                for one in queries.flips(store, run, "int4-g32", direction="lost", limit=999)
            }
            for run in (first, second)
        ]
    kinds = (lost[1] - lost[0], lost[0] - lost[1], lost[0] & lost[1])
    assert tuple(map(set, (flip.new, flip.gone, flip.same))) == kinds
    assert kinds[0]
    counts = " +".join(str(len(kind)) for kind in kinds)
    assert re.search(rf"int4-g32 +{counts} +0", shown)
    assert f"int4-g32 new: {flip.new[0]}, " in shown
    same = asked("diff", first, first, url=url)
    assert "nothing: the same arms, evalsets and rules" in same
    assert "→ proven" not in same
    assert f"{trial} is a trial" in asked("diff", first, trial, url=url)


def test_cases_that_only_one_run_asked_are_neither_new_nor_gone(tmp_path):
    url = f"sqlite:///{tmp_path / 'q.db'}"
    plans = (make_plan(cases=20, wrong=WORSE), make_plan(cases=20, wrong=WORSE, seed=3, policy=Policy(rules=RULES[:2])))
    with open_store(url) as store:
        first, second = (make_run(store, plan, WORSE) for plan in plans)
    found = run_changes(url, first, second)
    [flip] = found.flips
    assert (flip.new, flip.gone, flip.same) == ((), (), ())
    assert flip.asked_once > 0
    assert {line for line in found.differs if line.startswith("evalset ")}, "other cases are named"
    assert {f"rule {rule.id}: only in {first}" for rule in RULES[2:]} <= set(found.differs)


def test_two_runs_that_computed_in_other_ways_are_told_apart(stored, monkeypatch):
    url, first, second, _ = stored
    summary = queries.run_summary

    def served(store, run_id):
        found = summary(store, run_id)
        if run_id == first:
            return found
        arms = (replace(arm, spec=replace(arm.spec, arithmetic="served")) for arm in found.arms)
        return replace(found, arms=tuple(arms))

    monkeypatch.setattr(queries, "run_summary", served)
    told = run_changes(url, first, second).differs
    assert [line for line in told if "arithmetic" in line] == [
        f"arm {name}: arithmetic (float32 → served)" for name in ("baseline", "int4-g32")
    ]


def test_a_run_or_variant_that_is_not_there_is_told_with_those_that_are(stored):
    url, first, _, _ = stored
    assert "It has: int4-g32." in asked("flips", first, "int3", url=url, code=Exit.USAGE)
    assert "Its runs, newest first:" in asked("diff", first, "x" * 500, url=url, code=Exit.USAGE)
    no_metric = asked("flips", first, "int4-g32", "--metric", "numeric", url=url, code=Exit.USAGE)
    assert "It has: exact_match of arithmetic" in no_metric


def test_hostile_text_moves_nothing_on_the_screen(stored, capsys):
    url, first, second, _ = stored
    with open_store(url, create=False) as store:
        lines, flips = queries.list_runs(store), queries.flips(store, second, "int4-g32", limit=2)
    bad = replace(lines[0].variants[0], variant=ATTACK, reason=ATTACK, word=ATTACK, action="approve", name=ATTACK)
    print_runs([replace(lines[0], run_id=ATTACK, variants=(bad,))], 1)
    texts = dict.fromkeys(("metric", "evalset", "case_id", "reason", "prompt", "reference", "baseline"), ATTACK)
    print_flips(ATTACK, [replace(flip, **texts, variant=f"x{ATTACK}") for flip in flips], 2, 2, "lost", [[ATTACK]] * 2)
    found = run_changes(url, first, second)
    scores = tuple(replace(one, arm=ATTACK, metric=ATTACK, case_id=ATTACK) for one in found.scores)
    rates = tuple(replace(one, variant=ATTACK, rule=ATTACK, slice=ATTACK) for one in found.rates)
    print_run_changes(
        replace(
            found,
            before=ATTACK,
            differs=(ATTACK,),
            scores=scores,
            rates=rates,
            pairs={(ATTACK, ATTACK): 3},
            verdicts=(Words(variant=ATTACK, before=ATTACK, after=None),),
        )
    )
    shown = capsys.readouterr().out
    assert visible(shown) == shown
    assert "[2K" in shown


def test_a_terminal_gets_coloured_words_and_a_file_none(stored, monkeypatch, capsys):
    url, *_ = stored
    with open_store(url, create=False) as store:
        lines = queries.list_runs(store)
    for forced in (True, False):
        monkeypatch.setenv("FORCE_COLOR", "1") if forced else monkeypatch.delenv("FORCE_COLOR")
        print_runs(lines, len(lines))
        assert ("\x1b[" in capsys.readouterr().out) is forced


@pytest.mark.parametrize("show", queries.SHOWS)
def test_answers_are_shown_side_by_side_by_what_became_of_them(stored, show):
    """Held against every pair of the run, read case by case."""
    url, _, second, _ = stored
    with open_store(url, create=False) as store:
        pairs = [
            (name, queries.case_detail(store, second, "int4-g32", *name))
            for name in {(key.evalset, key.case_id, key.repeat) for key in runs.evidence(store, second).expected}
        ]

    def shown(pair: queries.CaseDetail) -> bool:
        values = {(a.value, b.value) for a in pair.baseline.scores for b in pair.variant.scores if a.metric == b.metric}
        both = pair.baseline, pair.variant
        return {
            "lost": (1, 0) in values, "gained": (0, 1) in values, "both-wrong": (0, 0) in values,
            "same": pair.baseline.text == pair.variant.text, "cut": any(one.finish_reason == "length" for one in both),
            "empty": any(not one.text.strip() for one in both),
        }[show]  # fmt: skip

    expected = sorted(name for name, pair in pairs if shown(pair))
    body = json.loads(
        asked("answers", second, "--arm", "int4-g32", "--show", show, "--limit", "999", "--json", url=url)
    )
    assert [(one["evalset"], one["case_id"], one["repeat"]) for one in body] == expected
    assert f"int4-g32 and its baseline: {len(expected)} case" in asked(
        "answers", second, "--arm", "int4-g32", "--show", show, url=url
    )


def test_answers_are_searched_and_mistakes_name_the_nearest(stored):
    url, _, second, _ = stored
    (case, *_) = json.loads(asked("answers", second, "--limit", "1", "--json", url=url))
    found = json.loads(asked("answers", second, "--case", case["case_id"], "--set", case["evalset"], "--json", url=url))
    assert found == [case]
    assert case in json.loads(
        asked("answers", second, "--search", case["variant"].upper(), "--limit", "999", "--json", url=url)
    )
    assert json.loads(asked("answers", second, "--search", "100%_\\", "--json", url=url)) == []
    assert "did you mean 'lost'" in asked("answers", second, "--show", "lots", url=url, code=Exit.USAGE)
    assert "has no variant 'int4'" in asked("answers", second, "--arm", "int4", url=url, code=Exit.USAGE)
