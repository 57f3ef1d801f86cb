"""Attacks over what rules count: the variant's loss lies where no critical rule looks, or where one looks away.

In each the rows still hold the loss, and a rule that looked there would block.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

from qualgate.gate.decide import decide
from qualgate.records import EarlyStop, Policy, Rule, Trial
from tests.gate.planted import run
from tests.verification.verdicts.attacks.of_four_arms import ARMS, FILES, losing_four
from tests.verification.verdicts.attacks.of_labels import MORE, TAGS, TASKS, more
from tests.verification.verdicts.attacks.of_rows import repeated
from tests.verification.verdicts.attacks.scene import (
    LOST,
    Ask,
    Change,
    Code,
    Scene,
    attacks,
    hash_again,
    losing,
    losing_external,
    lost_ids,
    number_of,
    on_both,
    right,
    ruled,
    sampled,
    setting,
    still_losing,
    then,
    with_fields,
)
from tests.verification.verdicts.attempts import exit_code

NOW = "2026-11-28T00:00:00+00:00"
READING = ("numeric", "math", "json.schema", "tool_call.correct", "tool_call.compat", "code.pass", "f1", "f1.drop",
           "multiple_choice", "refusal", "ifeval.prompt_strict", "ifeval.inst_loose", "lm_eval.acc_norm",
           "multiple_choice.acc")  # fmt: skip
ON_FORM = ("format.nonempty", "format.finished", "format.no_loop", "format.no_refusal", "format.same_language",
           "json.valid", "tool_call.parses", "reasoning.closed", "reasoning.no_leak", "reasoning.no_loop",
           "reasoning.committed")  # fmt: skip
LOOKS_AWAY: dict[str, dict[str, object]] = {
    "each set": {"per": "evalset"},
    "pooled": {},
    "of one set": {"evalset": "set"},
    "where a tag is": {"where": {"tag": "hard"}},
    "each value of a tag": {"per": "tag:hard"},
    "as a share": {"max_drop": ..., "max_relative_drop": 0.15},
}


def rewritten(**over: object) -> Change:
    """The rule, written otherwise."""
    return lambda s: s.gate["gate"]["rules"].__setitem__(0, with_fields(s.rule, **over))


def more_sets(*metrics: str) -> Change:
    """A set more for each metric. Of the last the variant lost a third; of all others nothing."""

    def change(scene: Scene) -> None:
        sets = ["set", *("other" if at == 1 else f"other{at}" for at in range(1, len(metrics) + 1))]
        scene.gate["evalsets"] = [{"name": name, "cases": "external"} for name in sets]
        for side, rows in scene.rows.items():
            kept = [_as_kept(row, side[0]) for row in rows]
            scene.rows[side] = [
                row | {"evalset": name, "metric": metric, "scorer": f"{metric}/1"}
                for name, metric in zip(sets, ("exact_match", *metrics), strict=True)
                for row in (rows if name == sets[-1] else kept)
            ]

    return change


def _as_kept(row: dict, side: str) -> dict:
    """The row of a variant that lost nothing."""
    value = right(side, number_of(row))
    return row | {"value": float(value), "verdict": value, "error_type": "" if value else "different"}


def form_beside(metric: str) -> Change:
    """Every answer is scored by its form as well, which no loss touches."""

    def change(scene: Scene) -> None:
        for name, rows in scene.rows.items():
            form = [_as_kept(row, name[0]) | {"metric": metric, "scorer": f"{metric}/1"} for row in rows]
            scene.rows[name] = rows + form

    return change


def _kept_tagged(scene: Scene) -> None:
    """What the variant did not lose has a tag."""
    ids = lost_ids(scene)
    on_both(lambda row: row | {"tags": ["kept"]}, lambda row: row["id"] not in ids)(scene)


def _of_another_metric(metric: str) -> Change:
    """What is lost was scored by another metric, on both sides."""

    def change(scene: Scene) -> None:
        ids = lost_ids(scene)
        on_both(lambda r: r | {"metric": metric, "scorer": f"{metric}/1"}, lambda r: r["id"] in ids)(scene)

    return change


def _read_by_all(metric: str) -> Change:
    """What was scored by exact_match was scored by this."""
    return on_both(lambda row: row | {"metric": metric, "scorer": f"{metric}/1"},
                   lambda row: row["metric"] == "exact_match")  # fmt: skip


SETS = attacks(losing_external, sampled({
    f"a set scored by {metric}, {how}, {also}": then(
        more_sets(metric), rewritten(**rule), more(extra, metric), still_losing)
    for metric, (how, rule), (also, extra) in product(READING, LOOKS_AWAY.items(), [*MORE.items()][:3])
}, 100))  # fmt: skip
# A critical rule on the other set that looks away as well, and third sets.
MANY_SETS = attacks(losing_external, {
    **{f"a rule on the form of a set scored by {metric}": then(
        more_sets(metric), form_beside("format.nonempty"), ruled(evalset="set"),
        more({"evalset": "other"}, "format.nonempty"), still_losing)
       for metric in READING},
    **{f"{count + 2} sets, one by {metric}": then(
        more_sets(*["exact_match"] * count, metric), ruled(per="evalset"), still_losing)
       for count in (1, 2) for metric in READING[:3]},
})  # fmt: skip
FORM = attacks(losing_external, sampled({
    f"a rule on {form} alone of answers scored by {metric}, {also}": then(
        _kept_tagged, _read_by_all(metric), form_beside(form), rewritten(metric=form), more(rule, metric), still_losing)
    for form, metric, (also, rule) in product(
        ON_FORM, ("exact_match", "tool_call.correct", "code.pass", "f1"), MORE.items())
}, 80)) | attacks(losing, {
    f"a set that asks for {form} as well, and a rule on that alone": then(
        lambda s, form=form: s.header.update(metrics=["exact_match", form]), form_beside(form),
        rewritten(metric=form), still_losing)
    for form in ON_FORM
}) | attacks(losing_external, {
    "a rule on times alone": rewritten(metric="latency.e2e", max_drop=..., max_ratio=1.5),
    "a rule on a judge alone": rewritten(metric="judge.win"),
    "a rule on a judge beside one on form": then(form_beside("format.nonempty"), rewritten(metric="format.nonempty"),
                                                 more({}, "judge.win")),
    "a rule on parity alone": rewritten(metric="parity.tokens", max_drop=..., min=0.9),
})  # fmt: skip
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
HELD: dict[str, dict[str, object]] = {  # what a case of the set holds → a metric that reads it
    "exact_match": {"answer": "7"},
    "numeric": {"answer": 7},
    "math": {"answer": "7"},
    "f1": {"answer": ["seven", "7"]},
    "json.schema": {"schema": {"type": "object"}},
    "tool_call.correct": {"tools": [TOOL], "expected_calls": [{"name": "add", "arguments": {}}]},
    "tool_call.function": {"tools": [TOOL], "expected_calls": []},
    "code.pass": {"tests": "assert add(1) == 2", "entry_point": "add"},
    "multiple_choice": {"choices": ["six", "seven"], "answer": "seven"},
    "refusal": {"refuse": True},
    "ifeval.prompt_strict": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
}


def _set_of(held: dict[str, object], *metrics: str) -> Change:
    """The set's cases hold this in place of an answer, and each is scored by these metrics."""

    def change(scene: Scene) -> None:
        scene.header["metrics"] = [*metrics]
        scene.cases = [with_fields(case, answer=...) | held for case in scene.cases or []]
        hash_again(scene)

    return change


# Rows are of the rule's metric alone, or of both: whatever rows say, the set says what a case holds.
FORM_OF_A_SET = attacks(losing, {
    **{f"cases to be judged by {metric} are scored by {form} alone": then(
        form_beside(form), rewritten(metric=form), still_losing, _set_of(held, form),
        on_both(lambda row: None, lambda row: row["metric"] == "exact_match"))
       for metric, held in HELD.items() for form in (*ON_FORM[:2], "json.valid", "reasoning.no_loop")},
    **{f"cases scored by {metric} and {form}, and a rule on {form} alone": then(
        form_beside(form), _read_by_all(metric), rewritten(metric=form), still_losing, _set_of(held, metric, form))
       for metric, held in HELD.items() for form in (ON_FORM[1], "json.valid")},
})  # fmt: skip
SPLIT = attacks(losing_external, {
    f"lost cases scored by {metric}, {how}": then(_of_another_metric(metric), rewritten(**rule))
    for metric in READING[:2] for how, rule in LOOKS_AWAY.items() if how != "of one set"
})  # fmt: skip

unlabelled = then(
    lambda s: (
        ids := lost_ids(s),
        on_both(lambda r: r | {"tags": ["lang:de"]} if r["id"] not in ids else r | {"tags": []})(s),
    ),
    ruled(per="tag:lang"),
)


def _uncounted(place: str, key: str, value: object) -> Change:
    """A set that no rule counts, and something that is almost the word for it."""

    def change(scene: Scene) -> None:
        gate = scene.gate
        places = {
            "the gate": gate["gate"], "the file": gate, "the rule": scene.rule, "a set": gate["evalsets"][-1],
            "the baseline": gate["baseline"], "the variant": gate["variants"]["v"],
            "generation": gate.setdefault("generation", {}) if place == "generation" else {},
            "a quarantine": gate["gate"].setdefault("quarantine", [{}])[0] if place == "a quarantine" else {},
        }  # fmt: skip
        places[place][key] = value

    return then(more_sets("numeric"), ruled(per="evalset"), change, still_losing)


ALLOWED = attacks(losing_external, {
    **{f"uncounted: {value!r}": _uncounted("the gate", "uncounted", value) for value in (
        "Allow", "ALLOW", "allow ", " allow", "allowed", "allow\u200b", "\u0430llow", "yes", True, None, ["allow"],
        {"set": "allow"}, 1, "refuse", "deny", "", "ok", "all", "other")},
    **{f"{key!r} in place of uncounted": _uncounted("the gate", key, "allow") for key in (
        "Uncounted", "uncounted ", "uncounted_cases", "un_counted", "not_counted", "uncount", "uncounted\u200b",
        "unc\u043eunted", "UNCOUNTED", "allow_uncounted")},
    **{f"uncounted at {place}": _uncounted(place, "uncounted", "allow") for place in (
        "the file", "the rule", "a set", "the baseline", "the variant", "generation", "a quarantine")},
    **{f"uncounted as {value!r}, lost cases scored by another metric": then(
        _of_another_metric("numeric"), lambda s, v=value: s.gate["gate"].update(uncounted=v))
       for value in ("Allow", "allowed", True)},
})  # fmt: skip


def quarantined(count: int) -> Change:
    """So many of the lost cases are held out for a while."""
    return lambda s: s.gate["gate"].update(quarantine=[
        {"case": case, "owner": "ann", "expires": "2999-01-01", "reason": "flaky"}
        for case in sorted(lost_ids(s))[:count]])  # fmt: skip


MIXED = attacks(losing_external, {
    **{f"{count} of the lost held out, the others without a label": then(quarantined(count), unlabelled, still_losing)
       for count in (1, 2, 3, 4, 10, LOST)},
    **{f"{count} held out, of a set that no rule counts": then(
        quarantined(count), more_sets("numeric"), ruled(per="evalset"), still_losing) for count in (1, 3, 4)},
    **{f"four answers each, {how}, lost ones without a label": then(
        repeated(4), unlabelled, ruled(repeats=how), still_losing) for how in ("mean", "any", "all", "pass^2")},
    **{f"passages of {size}, lost ones without a label": then(
        on_both(lambda r, size=size: r | {"cluster": f"p{number_of(r) // size}"}), unlabelled, still_losing)
       for size in (2, 3, 5)},
})  # fmt: skip


WAYS: dict[str, Change] = {  # by which evidence comes to its verdict
    "with looks": lambda s: s.options.update(looks="looks"),
    "with looks, stop: early": then(setting(stop="early"), lambda s: s.options.update(looks="looks")),
    "paired by ids": then(setting(identity="ids"), on_both(lambda r: with_fields(r, case_hash=...))),
    "at a lax alpha": setting(alpha=0.4),
    "at a strict alpha": setting(alpha=0.001),
    "asked twice": setting(noise_floor=True),
    "with an old quarantine": setting(quarantine=[
        {"case": "gone", "owner": "a", "expires": "2020-01-01", "reason": "b"}]),
    "answered four times": repeated(4),
}  # fmt: skip
HIDDEN: dict[str, Change] = {
    "a set that no rule counts": then(more_sets("numeric"), ruled(per="evalset")),
    "the lost set has no rule": then(more_sets("exact_match"), ruled(evalset="set")),
    "form in place of answers": then(form_beside("json.valid"), rewritten(metric="json.valid")),
    "lost ones without a tag": then(unlabelled, rewritten(per=..., where={"tag": "lang:de"}, max_drop=0.15)),
}  # fmt: skip
BY_EACH_WAY = attacks(losing_external, {
    f"{name}, {way}": then(change, still_losing, also)
    for name, change in HIDDEN.items() for way, also in WAYS.items()
})  # fmt: skip


def _decided(metric: str, policy: Policy, why: str) -> Ask:
    """The exit code of a whole evidence of which one set lost three tenths, by a metric of its own."""

    def ask(folder: Path) -> Code:
        evidence = run(n=400, lost={("tools", metric): 0.3}, metrics={"code": ("exact_match",), "tools": (metric,)})
        labels = {(unit.key.evalset, unit.key.case_id): ("tag:hard",) if unit.key.evalset == "code" else ()
                  for unit in evidence.baseline.units}  # fmt: skip
        return exit_code(lambda: int(decide(replace(evidence, labels=labels, decides_nothing=why), policy, NOW).exit))

    return ask


OF_CODE = {
    "each set": Rule(metric="exact_match", scope="evalset", max_drop=0.1),
    "pooled": Rule(metric="exact_match", max_drop=0.1),
    "where": Rule(metric="exact_match", where="tag:hard", max_drop=0.1),
    "a share": Rule(metric="exact_match", max_relative_drop=0.1),
}
WHOLE = {
    f"{metric} of a set, {how}, {also}": _decided(
        metric, replace(Policy(rules=(rule, *rules)), **over), "first look" if "trial" in over else ""
    )
    for metric in ("numeric", "tool_call.correct")
    for how, rule in OF_CODE.items()
    for also, rules, over in (
        ("alone", (), {}),
        ("beside a supporting rule", (Rule(metric=metric, max_drop=0.05, tier="supporting"),), {}),
        ("beside form", (Rule(metric="format.finished", evalset="code", max_drop=0.1),), {}),
        ("a person signs", (), {"review": "always"}),
        ("the first look", (), {"trial": Trial(limit=400, first_look=True)}),
        ("early", (), {"stop": EarlyStop(seed=1, looks=(400, 800))}),
    )
}


def _of_arms(key: str, value: object, per: str) -> Change:
    """All four arms' rows of the cases that were lost have this label, all others another."""

    def change(scene: Scene) -> None:
        for name in FILES:
            other = {"task": "add"} if key == "task" else {"tags": ["lang:de"]}
            label = {key: ["lang:x"] if value == "own" and key == "tags" else value}
            scene.rows[name] = [
                with_fields(row, **(label if number_of(row) < LOST else other)) for row in scene.rows[name]
            ]
        scene.rule["per"] = per

    return change


def _four_sets(scene: Scene) -> None:
    """The speculating arms lost a set of another metric, and nothing of the first."""
    scene.gate["evalsets"].append({"name": "other", "cases": "external"})
    for name, rows in scene.rows.items():
        kept = [_as_kept(row, "a") | {"evalset": "set"} for row in rows]
        scene.rows[name] = [*kept, *(row | {"evalset": "other", "metric": "numeric", "batch": row["batch"] + 100,
                                            "started": row["started"] + 1000} for row in rows)]  # fmt: skip


ARMS_OF_FOUR = attacks(losing_four, {
    **{f"tags: {name}": _of_arms("tags", value, "tag:lang") for name, value in TAGS.items()},
    **{f"task: {name}": _of_arms("task", value, "task") for name, value in TASKS.items()},
    **{f"a set of another metric, {how}": then(_four_sets, rewritten(**rule)) for how, rule in LOOKS_AWAY.items()
       if how in ("each set", "pooled", "of one set")},
    **{f"a set of another metric, uncounted: {value!r}": then(
        _four_sets, lambda s, value=value: s.gate["gate"].update(uncounted=value)) for value in ("Allow", True)},
    **{f"a rule on {form} alone": then(form_beside(form), rewritten(metric=form)) for form in ON_FORM},
})  # fmt: skip
assert {name for _, name in ARMS} | {"a.jsonl"} == set(FILES)

GROUPS = {"sets that no rule counts": SETS, "several sets": MANY_SETS, "form in place of answers": FORM,
          "form in place of what a set holds": FORM_OF_A_SET, "by each way": BY_EACH_WAY,
          "two metrics in a set": SPLIT, "almost allowed": ALLOWED, "held out, asked again": MIXED,
          "four arms' cases": ARMS_OF_FOUR, "whole evidences": WHOLE}  # fmt: skip
