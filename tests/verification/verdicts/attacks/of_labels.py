"""Attacks over labels: the third of the cases that the variant lost has no label that a rule asks for, or almost one.

All scores stay where they are, so the variant has lost a third whatever a label says; only the rule's slices change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.verification.verdicts.attacks.scene import (
    Change,
    Row,
    Scene,
    attacks,
    each,
    external,
    hash_again,
    hidden,
    losing,
    losing_external,
    lost_ids,
    number_of,
    on_both,
    ruled,
    sampled,
    still_losing,
    then,
    with_fields,
)

ONE_SIDED = 40  # of the ways to hide them on one side alone: rows that disagree know no labels
TAGS: dict[str, Any] = {
    "no tags": [], "tags left out": ..., "null": None, "the name alone": ["lang"], "no value": ["lang:"],
    "a value of a blank": ["lang: "], "a capital": ["Lang:de"], "a capital value": ["lang:De"],
    "a semicolon": ["lang;de"], "another name": ["language:de"], "no colon": ["langde"],
    "a Cyrillic letter": ["l\u0430ng:de"],
    "a full-width colon": ["lang\uff1ade"], "a space behind": ["lang:de "], "a space before": [" lang:de"],
    "a zero width space": ["lang\u200b:de"], "a tag of no rule": ["other"], "each its own value": "own",
}  # fmt: skip
TASKS: dict[str, Any] = {
    "no task": ..., "null": None, "empty": "", "a blank": " ", "a capital": "Add", "a Cyrillic letter": "\u0430dd",
    "a space behind": "add ", "a zero width space": "add\u200b", "each its own task": "own",
}  # fmt: skip
MORE: dict[str, dict[str, object] | None] = {
    "alone": None,
    "a supporting rule on all": {"tier": "supporting"},
    "an advisory rule on all": {"tier": "advisory"},
    "a critical rule on kept cases": {"where": {"tag": "kept"}, "max_drop": 0.15},
}


def more(rule: dict[str, object] | None, metric: str = "exact_match") -> Change:
    """One rule more, or none."""
    return lambda s: rule and s.gate["gate"]["rules"].append({"metric": metric, "max_drop": 0.12} | rule)


def _own(value: Any, key: str, row: Row) -> Any:
    if value != "own":
        return value
    return [f"lang:{row['id']}"] if key == "tags" else row["id"]


def _labelled(key: str, row: Row) -> Row:
    """What a case has that was not hidden: one of two tasks, of two languages, and `kept`."""
    half = number_of(row) // 2 % 2
    return (
        row | {"task": ("add", "sort")[half]}
        if key == "task"
        else row | {"tags": [f"lang:{('de', 'en')[half]}", "kept"]}
    )


def _hiding(key: str, value: Any, sides: tuple[str, ...]) -> Change:
    def change(scene: Scene) -> None:
        ids = lost_ids(scene)
        for name, rows in scene.rows.items():
            scene.rows[name] = [
                with_fields(row, **{key: _own(value, key, row)})
                if row["id"] in ids and name in sides
                else _labelled(key, row)
                for row in rows
            ]
        scene.rule["per"] = "task" if key == "task" else "tag:lang"
        scene.rule["max_drop"] = 0.15

    return change


def _of_rows(side: str, *names: str) -> Iterator[tuple[str, Change]]:
    ways = [*(("tags", *way) for way in TAGS.items()), *(("task", *way) for way in TASKS.items())]
    for (key, name, value), (also, rule) in product(ways, MORE.items()):
        yield f"{key}: {name}, {side}, {also}", then(_hiding(key, value, names), more(rule), still_losing)


def _of_cases(key: str, value: Any, per: str) -> Change:
    """The set that lies there says it of its cases, and the rows carry its hashes."""

    def change(scene: Scene) -> None:
        ids = lost_ids(scene)
        scene.cases = [
            with_fields(case, **{key: _own(value, key, case)}) if case["id"] in ids else _labelled(key, case)
            for case in scene.cases or []
        ]
        hash_again(scene)
        scene.rule.update(per=per, max_drop=0.15)

    return change


def _by_size(key: str, size: int) -> Change:
    """Lost cases in slices of so many, each too small to tell."""

    def change(scene: Scene) -> None:
        ids = sorted(lost_ids(scene))
        place = {case: at // size for at, case in enumerate(ids)}

        def label(row: Row) -> Row:
            if row["id"] not in place:
                return _labelled(key, row)
            value = f"x{place[row['id']]}"
            return row | ({"task": value} if key == "task" else {"tags": [f"lang:{value}"]})

        on_both(label)(scene)
        scene.rule.update(per="task" if key == "task" else "tag:lang", max_drop=0.15)

    return change


def _where(**label: str) -> Change:
    """One rule, on what was kept."""
    marks = {"tag": {"tags": [label.get("tag", "")]}, "task": {"task": label.get("task", "")}}[next(iter(label))]

    def change(scene: Scene) -> None:
        ids = lost_ids(scene)
        on_both(lambda r: r | marks, lambda r: r["id"] not in ids)(scene)
        scene.rule.update(where=label, max_drop=0.15)

    return change


IN_ROWS = attacks(losing_external, {
    **dict(_of_rows("on both sides", "a.jsonl", "b.jsonl")),
    **sampled(dict([*_of_rows("on the variant's", "b.jsonl"), *_of_rows("on the baseline's", "a.jsonl")]), ONE_SIDED),
})  # fmt: skip
IN_THE_SET = attacks(losing, {
    f"{key} of the set: {name}": then(_of_cases(key, value, per), still_losing)
    for key, per, values in (("tags", "tag:lang", TAGS), ("task", "task", TASKS)) for name, value in values.items()
})  # fmt: skip
SMALL = attacks(losing_external, {
    f"{key} of {size} cases each, {also}": then(_by_size(key, size), more(rule), still_losing)
    for key in ("tags", "task") for size in (1, 2, 5, 9, 18) for also, rule in MORE.items()
})  # fmt: skip
WHERE = attacks(losing_external, {
    f"where {key} is {value!r}, {also}": then(_where(**{key: value}), more(rule), still_losing)
    for key, value in (("tag", "kept"), ("tag", "lang:de"), ("tag", "кept"), ("task", "add"), ("task", "sort"))
    for also, rule in MORE.items()
})  # fmt: skip
# The labels themselves are at fault, and no verdict may rest on them.
OTHERS = attacks(losing_external, {
    "a task for a tag": then(on_both(lambda r: with_fields(r, tags=..., task="hard")), ruled(where={"tag": "hard"})),
    "the lost ones are hard no more, on the variant's side": then(hidden(tags=[]), ruled(where={"tag": "hard"})),
    "hard in capitals where it is lost": then(hidden(tags=["Hard"]), ruled(where={"tag": "hard"})),
    "a tag that only the variant's rows have": then(
        each("a.jsonl", lambda r: r | {"tags": []}), ruled(where={"tag": "hard"})),
}) | attacks(external, {
    "a tag that no case has": ruled(where={"tag": "harder"}),
    "a tag with a space": ruled(where={"tag": "hard "}),
    "a task where none is": ruled(where={"task": "hard"}),
    "each task where none is": ruled(per="task"),
    "each value of a tag that none has": ruled(per="tag:lang"),
    "a tag that twelve cases have": then(
        on_both(lambda r: r | {"tags": ["hard"] if number_of(r) < 12 else []}), ruled(where={"tag": "hard"})),
    "a tag whose cases the baseline has wrong": then(
        on_both(lambda r: r | {"tags": ["hard"] if number_of(r) % 10 == 0 else []}), ruled(where={"tag": "hard"})),
}) | attacks(losing, {
    "the set says which are hard, whatever the rows say": then(
        on_both(lambda r: r | {"tags": ["hard"] if number_of(r) >= 54 else []}), ruled(where={"tag": "hard"})),
})  # fmt: skip

GROUPS = {"labels of rows": IN_ROWS, "labels of the set": IN_THE_SET, "small slices": SMALL,
          "rules on a part": WHERE, "labels that fit no rule": OTHERS}  # fmt: skip
