"""Attacks by copies: a file that holds another arm's rows, changed in what is no answer and no score.

Whoever hands one in has measured nothing of the variant, however much it lost.
"""

from __future__ import annotations

import json
from itertools import combinations, product
from typing import Any

from tests.verification.verdicts.attacks.of_four_arms import FILES, four
from tests.verification.verdicts.attacks.of_rows import repeated
from tests.verification.verdicts.attacks.scene import (
    Change,
    Row,
    Scene,
    attacks,
    bytes_of,
    each,
    lines,
    losing,
    losing_external,
    number_of,
    on_both,
    sampled,
    setting,
    then,
    with_fields,
)

B = "b.jsonl"
# What a row may say beside whose answer it is, what it is of, and what it scored.
FIELDS: dict[str, dict[str, Any]] = {
    "a note": {"note": "copy"},
    "a reason": {"reason": "as the reference"},
    "a key that nobody reads": {"x-run": 7},
    "metadata": {"metadata": {"a": [1, None]}},
    "tags": {"tags": ["copied"]},
    "no tags": {"tags": ...},
    "a task": {"task": "add"},
    "a time of start": {"started": 5.0},
    "another time of start": {"started": 6},
    "a batch": {"batch": 3},
    "seconds": {"e2e": 0.5, "ttft": 0.1},
    "tokens": {"tokens": 12, "prompt_tokens": 9},
    "attempts": {"attempts": [{"outcome": "done", "seconds": 1.0}]},
    "drafts": {"draft_proposed": 5, "draft_accepted": 3, "e2e": 3.0, "attempts": [
        {"outcome": "done", "prompt_tokens": 9, "output_tokens": 3, "seconds": 3.0}]},
    "no end": {"finish_reason": ...},
    "another end": {"finish_reason": "stop"},
    "an end in capitals": {"finish_reason": "EOS"},
    "no verdict": {"verdict": ..., "error_type": ...},
    "a status": {"status": "done"},
    "an empty error": {"error": ""},
    "nulls": {"cluster": None, "status": None, "error": None, "task": None},
    "a repeat of 0": {"repeat": 0},
    "its evalset": {"evalset": "set"},
    "what was extracted": {"extracted": "7"},
    "an empty extract": {"extracted": ""},
    "a text's hash": {"text_sha256": "a" * 64},
    "tokens' ids": {"token_ids": [1, 2, 3]},
    "gaps of logits": {"token_ids": [1], "top2_gaps": [0.5]},
}  # fmt: skip
VALUES: dict[str, Any] = {
    "whole numbers": int,
    "true and false": bool,
    "minus nothing": lambda value: value or -0.0,
    "1.0": float,
}
FORMS: dict[str, Change] = {
    "as it is": lambda s: None,
    "in another order": lambda s: s.variant.reverse(),
    "keys in another order": bytes_of(B, lambda c: lines(
        [dict(reversed(json.loads(line).items())) for line in c.splitlines()])),
    "lines ended otherwise": bytes_of(B, lambda c: c.replace(b"\n", b"\r\n")),
    "a byte-order mark": bytes_of(B, lambda c: b"\xef\xbb\xbf" + c),
    "escapes": bytes_of(B, lambda c: c.replace("\u00e9".encode(), b"\\u00e9")),
    "spaces between": bytes_of(B, lambda c: c.replace(b'": ', b'" :  ')),
    "numbers written at length": bytes_of(B, lambda c: c.replace(b'"value": 1.0', b'"value": 1.000e0')),
}  # fmt: skip
PLACES = {
    "everywhere": lambda row: True,
    "on one row": lambda row: number_of(row) == 7,
    "on every third": lambda row: number_of(row) % 3 == 0,
}
NAMES: dict[str, Change] = {  # of models: what may stand in the rows of either side
    "both name one model": lambda s: None,
    "the copy names none": each(B, lambda r: with_fields(r, model=...)),
    "the baseline names none": each("a.jsonl", lambda r: with_fields(r, model=...)),
    "nobody names a model": on_both(lambda r: with_fields(r, model=...)),
    "some rows name none": each(B, lambda r: with_fields(r, model=...), lambda r: number_of(r) % 2 == 0),
}


def copied(scene: Scene) -> None:
    """The variant's file is the baseline's; both name one model, which the gate file lists of both."""
    scene.rows[B] = [dict(row) for row in scene.rows["a.jsonl"]]
    on_both(lambda row: row | {"model": "served"})(scene)


def _valued(convert: Any) -> Change:
    return each(B, lambda row: row | {"value": convert(row["value"])})


def _with(fields: Row, where: Any) -> Change:
    return each(B, lambda row: with_fields(row, **fields), where)


def _with_rows(*sides: str, metric: str = "latency.e2e", **fields: Any) -> Change:
    """These files hold a row more for each answer, of a time that no scorer gave."""

    def change(scene: Scene) -> None:
        for name in sides:
            more = [with_fields(row, metric=metric, value=1.0 + (name == B) / 8, verdict=..., error_type=..., **fields)
                    for row in scene.rows[name]]  # fmt: skip
            scene.rows[name] = scene.rows[name] + more

    return change


BESIDE: dict[str, Change] = {
    **{f"the baseline alone has {name}": each("a.jsonl", lambda row, fields=fields: with_fields(row, **fields))
       for name, fields in FIELDS.items() if ... not in fields.values()},
    "other times as rows": _with_rows("a.jsonl", B),
    "times as rows of the copy": _with_rows(B),
    "a divergence as rows of the copy": _with_rows(B, metric="drift.kl_mean"),
    "no hash in the copy, paired by ids": then(
        each(B, lambda r: with_fields(r, case_hash=...)), setting(identity="ids")),
    "no hash at all, paired by ids": then(on_both(lambda r: with_fields(r, case_hash=...)), setting(identity="ids")),
    "no scorer at all": on_both(lambda r: with_fields(r, scorer=...)),
    "nulls for other reasons": lambda s: [
        each(name, lambda r, why=why: with_fields(r, value=None, verdict=None, error_type=why),
             lambda r: number_of(r) in (5, 15))(s) for name, why in (("a.jsonl", "timeout"), (B, "too_long"))],
    "several answers each": repeated(3),
    "passages": on_both(lambda r: r | {"cluster": f"p{number_of(r) // 2}"}),
    "two sets": on_both(lambda r: r | {"evalset": "other" if number_of(r) % 2 else "set"}),
    "kept looks": lambda s: s.options.update(looks="looks"),
    "names of two models of which one is the baseline's": then(
        each(B, lambda r: r | {"model": "small"}, lambda r: number_of(r) % 2 == 0),
        lambda s: s.gate["variants"]["v"].update(models=["small", "served"])),
    "a relative rule": lambda s: s.gate["gate"].update(rules=[{"metric": "exact_match", "max_relative_drop": 0.15}]),
    "uncounted allowed": setting(uncounted="allow"),
}  # fmt: skip


def _two_sets(scene: Scene) -> None:
    scene.gate["evalsets"] = [{"name": name, "cases": "external"} for name in ("set", "other")]


BESIDE["two sets"] = then(_two_sets, BESIDE["two sets"])
RESAVED = {  # by a program that writes numbers, or texts, of its own
    f"what was extracted, {one!r} as {other!r}": then(
        each("a.jsonl", lambda r, one=one: r | {"extracted": one}),
        each(B, lambda r, other=other: r | {"extracted": other}))
    for one, other in ((7, 7.0), (7, "7"), (7.5, "7.5"), (True, "True"))
}  # fmt: skip
COPIES = attacks(losing_external, sampled({
    f"with {name}, {where}, {names}": then(copied, change, _with(fields, at))
    for (name, fields), (where, at), (names, change) in product(FIELDS.items(), PLACES.items(), NAMES.items())
}, 90) | sampled({
    f"{name}, {names}": then(copied, also, change)
    for (name, change), (names, also) in product(
        {**FORMS, **{f"values as {how}": _valued(to) for how, to in VALUES.items()}, **BESIDE}.items(), NAMES.items())
}, 90) | {
    f"{name}, {names}": then(copied, also, change)
    for (name, change), (names, also) in product(RESAVED.items(), [*NAMES.items()][::3])
}) | attacks(losing, {
    f"of the set that lies there, with {name}": then(copied, _with(fields, PLACES["everywhere"]))
    for name, fields in FIELDS.items()
})  # fmt: skip


CHANGED = ("a note", "a reason", "tags", "seconds", "drafts", "no verdict")


def _one_of_four(theirs: str, name: str, fields: Row, silent: tuple[str, ...]) -> Change:
    """One arm's file holds another's rows, and these files' rows name no model."""

    def made(scene: Scene) -> None:
        model = scene.rows[name][0]["model"]
        scene.rows[name] = [with_fields(row, model=model, **fields) for row in scene.rows[theirs]]
        for file in silent:
            scene.rows[file] = [with_fields(row, model=...) for row in scene.rows[file]]

    return made


OF_FOUR = attacks(four, {
    f"{name[0]} holds {theirs[0]}, with {what}, {len(silent)} named none": _one_of_four(
        theirs, name, FIELDS.get(what, {}), silent)
    for theirs, name in combinations(FILES, 2)
    for what in ("nothing changed", *CHANGED)
    for silent in ((name,), (theirs, name))
})  # fmt: skip

GROUPS = {"copies": COPIES, "copies among four arms": OF_FOUR}
