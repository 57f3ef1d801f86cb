"""Row `attacks.legitimate`: odd inputs of honest users, each through the command itself. None may be refused.

What approves must still approve, what lost a third must still block, and what cannot be decided is said to be so (12);
64, 13 and 14 refuse the user.

python -m tests.verification.verdicts.legitimate     a line for each: name, exit code expected and found
"""

from __future__ import annotations

import json
from typing import Any

from tests.verification.verdicts.attacks.of_four_arms import S, X, declared, four, undrafted
from tests.verification.verdicts.attacks.of_rows import repeated
from tests.verification.verdicts.attacks.of_sets import expecting
from tests.verification.verdicts.attacks.scene import (
    Change,
    Scene,
    attacks,
    bytes_of,
    each,
    external,
    hidden,
    lines,
    losing,
    number_of,
    of_file,
    on_both,
    ruled,
    setting,
    sound,
    then,
    with_fields,
    wrong,
)
from tests.verification.verdicts.attempts import Attempt, outcomes, row_of

ID, LEAST, QUICK = "attacks.legitimate", 100, 10


def rows(**over: object) -> Change:
    """Every row of both sides says something more, or other."""
    return on_both(lambda row: with_fields(row, **over))


def _wrap(content: bytes) -> bytes:
    return content.replace(b"\n", b"\r\n")


def _own_keys(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"metadata": {"a": [1, {"b": None}]}, "x-run": 7, "task_id": "HumanEval/3", "entry_point": "f",
                  "question": "2 + 2?", "prompt_hash": "p", "latency_ms": 12.5}  # fmt: skip


def _two_sets(scene: Any) -> None:
    scene.gate["evalsets"] = [{"name": name, "cases": "external"} for name in ("set", "other")]
    on_both(lambda r: r | {"evalset": "other" if number_of(r) % 2 else "set"})(scene)


def _more_metrics(scene: Any) -> None:
    """Each answer scored by a metric that no rule names, and by one of their own."""
    for name, found in scene.rows.items():
        more = ({}, {"metric": "json.valid", "value": 1.0}, {"metric": "ours.tone", "value": 0.3})
        scene.rows[name] = [with_fields(row, verdict=..., error_type=..., **one) for row in found for one in more]


def _part(scene: Any) -> None:
    """Half of the set, by a list that says why."""
    on_both(lambda r: None, lambda r: number_of(r) % 2)(scene)
    expecting(subset="the even ones, as the odd ones are being rewritten")(scene)


def _null_on_two(scene: Any) -> None:
    on_both(lambda r: with_fields(r, value=None, verdict=None, error_type="timeout"),
                        lambda r: r["id"] in ("é-c5", "é-c15"))(scene)  # fmt: skip


def _equal(scene: Any) -> None:
    scene.rows["b.jsonl"] = [row | {"model": "small"} for row in scene.rows["a.jsonl"]]


FILES: dict[str, Change] = {
    "lines ended as on Windows": then(*(bytes_of(name, _wrap) for name in ("a.jsonl", "b.jsonl", "gate.yaml"))),
    "a byte-order mark": then(*(bytes_of(n, lambda c: b"\xef\xbb\xbf" + c) for n in ("a.jsonl", "b.jsonl"))),
    "no end of the last line": bytes_of("b.jsonl", bytes.rstrip),
    "blank lines at the end": bytes_of("b.jsonl", lambda c: c + b"\n \n\n"),
    "escapes on one side": bytes_of("b.jsonl", lambda c: c.replace("é".encode(), b"\\u00e9")),
    "spaces between": bytes_of("b.jsonl", lambda c: c.replace(b'": ', b'" :  ')),
    "keys in another order": bytes_of("b.jsonl", lambda c: lines(
        [dict(reversed(json.loads(line).items())) for line in c.splitlines()])),
    "rows in another order": lambda s: s.variant.reverse(),
    "files by links": lambda s: (s.raw.update({"runs/b.jsonl": s.content("b.jsonl")}),
                                 s.links.update({"b.jsonl": "runs/b.jsonl"})),
}  # fmt: skip
ROWS: dict[str, Change] = {
    "columns of their own": on_both(_own_keys),
    "columns of their own on one side": each("b.jsonl", _own_keys),
    "true and false for 1 and 0": on_both(
        lambda r: with_fields(r, value=bool(r["value"]), verdict=..., error_type=...)),
    "whole numbers": on_both(lambda r: r | {"value": int(r["value"])}),
    "minus nothing": on_both(lambda r: r | {"value": -0.0 if wrong(r) else 1.0}),
    "no verdicts": rows(verdict=..., error_type=...),
    "null for what is not said": rows(cluster=None, status=None, error=None, task=None, reason=None, evalset=None),
    "a status of done": rows(status="done"),
    "an error that is empty": rows(error=""),
    "an error that is false": rows(error=False),
    "ends in other words": rows(finish_reason="STOP"),
    "ends of tool calls": rows(finish_reason="tool_calls"),
    "no ends": rows(finish_reason=...),
    "no models": rows(model=...),
    "one name of both models": rows(model="support"),
    "two names of one model that are listed": then(
        each("b.jsonl", lambda r: r | {"model": "small-0"}, lambda r: r["id"].endswith("1")),
        lambda s: s.gate["variants"]["v"].update(models=["small", "small-0"])),
    "all scores equal": _equal,
    "the variant better": each("b.jsonl", lambda r: r | {"value": 1.0, "verdict": True, "error_type": ""}),
    "the variant cut off on a few": each("b.jsonl", lambda r: r | {"finish_reason": "length"},
                                         lambda r: number_of(r) % 40 == 0),
    "the variant cut off on many, as it may be": then(
        each("b.jsonl", lambda r: r | {"finish_reason": "length"}, lambda r: number_of(r) % 3 == 0),
        setting(max_unfinished=0.4)),
    "two answers that nobody could judge": _null_on_two,
    "metrics that no rule names": _more_metrics,
    "its evalset by name": rows(evalset="set"),
    "a repeat of 0": rows(repeat=0),
    "repeats counted from 1": repeated(2, first=1),
    "four answers, and stated": then(repeated(4), of_file(generation={"temperature": 0.7, "repeats": 4})),
    "four from 1, and stated": then(repeated(4, first=1), of_file(generation={"temperature": 0.7, "repeats": 4})),
    "times": rows(e2e=1.0, ttft=0.1, tokens=12, prompt_tokens=9, batch=0),
    "drafts": rows(draft_proposed=5, draft_accepted=5),
    "tries that failed before one was done": rows(attempts=[
        {"outcome": "failed", "cause": "timeout", "seconds": 3.0}, {"outcome": "done", "seconds": 1.0}]),
    "a hedge that was given up after the answer": rows(attempts=[
        {"outcome": "done", "seconds": 1.0}, {"outcome": "cancelled", "seconds": 0.5}]),
    "extracted answers that are lists": rows(extracted=["1", 2]),
    "a long reason": rows(reason="x" * 5000),
    "hashes on neither side, ids asked for": then(rows(case_hash=...), setting(identity="ids")),
}  # fmt: skip
POLICIES: dict[str, Change] = {
    "the gate file as JSON": lambda s: s.raw.update({"gate.yaml": json.dumps(s.gate).encode()}),
    "a strict alpha": setting(alpha=0.01),
    "each set": ruled(per="evalset"),
    "where a tag is, which is meant": then(ruled(where={"tag": "hard"}, max_drop=0.15), setting(uncounted="allow")),
    "a rule of one set": ruled(evalset="set"),
    "three cases held out": setting(quarantine=[
        {"case": f"é-c{n}", "owner": "ann", "expires": "2999-01-01", "reason": "two answers are right"}
        for n in (3, 4, 5)]),
    "a quarantine that ended": setting(quarantine=[
        {"case": "é-c3", "owner": "ann", "expires": "2020-01-01", "reason": "flaky"}]),
    "a quarantine of a case that is gone": setting(quarantine=[
        {"case": "gone", "owner": "ann", "expires": "2999-01-01", "reason": "flaky"}]),
    "an advisory rule on what nobody measured": lambda s: s.gate["gate"]["rules"].append(
        {"metric": "drift.kl_mean", "max": 0.05, "tier": "advisory"}),
    "a set of its own order": lambda s: (s.cases or []).reverse(),
    "a set with a description in Chinese": lambda s: s.header.update(description="客服問題"),
    "tags that changed since": lambda s: [case.update(tags=["new"]) for case in s.cases or []],
    "a set in a folder below": lambda s: (
        s.raw.update({"sets/set.yaml": s.content("set.yaml"), "sets/set.jsonl": s.content("set.jsonl")}),
        setattr(s, "cases", None), s.gate.update(evalsets=["./sets/set.yaml"])),
    "a set's lines by a link beside it": lambda s: (
        s.raw.update({"set-v1.jsonl": s.content("set.jsonl")}), s.links.update({"set.jsonl": "set-v1.jsonl"})),
    "expected that names all": expecting(),
    "expected that names each twice": then(expecting(), lambda s: s.raw.update(
        {"ids.jsonl": s.raw["ids.jsonl"] * 2})),
    "half of a set, and why": _part,
    "looks kept from the first time on": lambda s: s.options.update(looks="looks"),
    "stop: early with looks": then(setting(stop="early"), lambda s: s.options.update(looks="looks")),
}  # fmt: skip
EXTERNAL: dict[str, Change] = {
    "two sets whose cases lie elsewhere": _two_sets,
    "expected of what lies elsewhere": expecting(),
    "an external set beside a shipped set's name": then(
        of_file(evalsets=[{"name": "arithmetic", "cases": "external"}])),
    "an external set, and another near it": lambda s: s.raw.update(
        {"set2.yaml": b"name: set2\nversion: '1'\nmetrics: [exact_match]\n", "set2.jsonl": b'{"id": "1"}\n'}),
    "passages": on_both(lambda r: r | {"cluster": f"p{number_of(r) // 2}"}),
    "tasks": then(rows(task="count"), ruled(per="task")),
    "each value of a tag": then(on_both(lambda r: r | {"tags": ["lang:de" if number_of(r) // 2 % 2 else "lang:en"]}),
        ruled(per="tag:lang", max_drop=0.15)),
    "ids that differ in case alone": on_both(
        lambda r: r | {"id": "CASE" if r["id"] == "é-c1" else "case" if r["id"] == "é-c2" else r["id"]}),
    "ids of spaces, emoji and 300 letters": on_both(lambda r: r | {"id": f"  🙂 {r['id']} " + "x" * 300}),
    "forty passages": on_both(lambda r: r | {"cluster": f"p{number_of(r) % 40}"}),
}  # fmt: skip


def _labelled(key: str, *values: Any) -> Change:
    """Every case in turn has one of these labels."""
    return on_both(lambda r: with_fields(r, **{key: values[number_of(r) // 2 % len(values)]}))


def _second_set(metric: str, *rules: dict[str, Any], **others: Any) -> Change:
    """The same answers once more, as a set that this metric scores, and rules on it."""

    def change(scene: Scene) -> None:
        scene.gate["evalsets"] = [{"name": name, "cases": "external"} for name in ("set", "other")]
        scene.gate["gate"]["rules"] += rules
        scene.gate["gate"] |= others
        for name, found in scene.rows.items():
            scene.rows[name] = [
                row | {"evalset": at, "metric": of, "scorer": f"{of}/1"}
                for at, of in (("set", "exact_match"), ("other", metric)) for row in found
            ]  # fmt: skip

    return change


def _also_scored(metric: str, *rules: dict[str, Any]) -> Change:
    """Every answer has a score of this metric too."""

    def change(scene: Scene) -> None:
        scene.gate["gate"]["rules"] += rules
        for name, found in scene.rows.items():
            scene.rows[name] = [row | more for row in found for more in ({}, {"metric": metric, "scorer": "other/1"})]

    return change


def _told_apart(*sides: str) -> Change:
    """All scores equal, nobody names a model, and these files say something of what was answered."""
    return then(_equal, rows(model=...), *(each(n, lambda r, n=n: r | {"text_sha256": n[0] * 64}) for n in sides))


BOUND = {"max_drop": 0.12}
COUNTED: dict[str, Change] = {
    "a task on half of the cases": then(_labelled("task", "add", ...), ruled(per="task", max_drop=0.15)),
    "a tag on every second case": then(_labelled("tags", ["lang:de"], []), ruled(per="tag:lang", max_drop=0.15)),
    "tasks that differ by a capital": then(_labelled("task", "add", "Add"), ruled(per="task", max_drop=0.15)),
    "two values of a tag on one case": then(_labelled("tags", ["lang:de", "lang:en"], ["lang:en"]),
                                            ruled(per="tag:lang", max_drop=0.15)),
    "tags in another order on one side": then(_labelled("tags", ["a", "lang:x"]), ruled(per="tag:lang"),
                                              each("b.jsonl", lambda r: r | {"tags": r["tags"][::-1]})),
    "a part by a tag, and all of them": then(ruled(where={"tag": "hard"}, max_drop=0.15), lambda s: s.gate["gate"][
        "rules"].append({"metric": "exact_match", **BOUND})),
    "a set of another metric, with its rule": _second_set("numeric", {"metric": "numeric", **BOUND}),
    "a graded set, with its rule": _second_set("f1", {"metric": "f1", **BOUND}),
    "calls, with a rule of that set": _second_set("tool_call.correct", {
        "metric": "tool_call.correct", "evalset": "other", **BOUND}),
    "a set that holds no reference, with a rule on form": _second_set("format.nonempty", {
        "metric": "format.nonempty", "evalset": "other", **BOUND}),
    "JSON that holds no schema": _second_set("json.valid", {"metric": "json.valid", "evalset": "other", **BOUND}),
    "thoughts alone": _second_set("reasoning.closed", {"metric": "reasoning.closed", **BOUND}),
    "a set that no rule counts, which is meant": _second_set("numeric", uncounted="allow"),
    "all counted, and nothing else allowed": setting(uncounted="refuse"),
    "a rule on form beside the answers'": _also_scored("format.finished", {"metric": "format.finished", **BOUND}),
    "a supporting rule on form": _also_scored("json.valid", {"metric": "json.valid", "tier": "supporting", **BOUND}),
    "every tier": _also_scored("numeric", {"metric": "numeric", "tier": "supporting", **BOUND}, {
        "metric": "exact_match", "tier": "advisory", "max_drop": 0.01}),
    "a case held out of its task": then(ruled(per="task", max_drop=0.15), _labelled("task", "add", "b"),
        setting(quarantine=[{"case": "é-c3", "owner": "ann", "expires": "2999-01-01", "reason": "two are right"}])),
    "answers that differ where no score does": _told_apart("a.jsonl", "b.jsonl"),
    "one answer gained, and nobody names a model": then(
        _equal, rows(model=...), each("b.jsonl", lambda r: r | {"value": 1.0, "verdict": True, "error_type": ""},
                                      lambda r: number_of(r) == 10)),
    "all texts equal, of two models": then(rows(token_ids=[1, 2], extracted="7"), _equal),
    "a model's name in capitals": then(rows(model="BIG"), each("b.jsonl", lambda r: r | {"model": "SMALL"})),
}  # fmt: skip
FOUR: dict[str, Change] = {
    "four arms that speculate": lambda s: None,
    "four arms without prices": lambda s: s.gate.pop("prices"),
    "drafts that a server declared": then(
        undrafted(S, X), declared(drafted={"proposed": 900, "accepted": 500}, both={"proposed": 9, "accepted": 9})),
    "drafts of which none was kept": then(*(each(n, lambda r: r | {"draft_accepted": 0}) for n in (S, X))),
    "drafts of which nobody counted the kept": then(*(each(n, lambda r: with_fields(r, draft_accepted=...))
                                                      for n in (S, X))),
}  # fmt: skip
LOSSES: dict[str, Change] = {
    "a loss with columns of its own": on_both(_own_keys),
    "a loss in lines as on Windows": bytes_of("b.jsonl", _wrap),
    "a loss cut off": hidden(finish_reason="length"),
}
UNSAID: dict[str, Change] = {
    "a loss that nobody could judge": hidden(value=None, verdict=None, error_type="timeout"),
}
OPEN: dict[str, Change] = {
    "a part by a tag, and no word that it is meant": ruled(where={"tag": "hard"}, max_drop=0.15),
    "a rule on times that were not taken": lambda s: s.gate["gate"]["rules"].append(
        {"metric": "latency.e2e", "max_ratio": 1.1}),
}  # fmt: skip


def listed() -> list[Attempt]:
    """Every input, with the exit code that it must have."""
    found = [
        *((0, attacks(start, changes)) for start, changes in (
            (sound, FILES), (sound, ROWS), (sound, POLICIES), (external, EXTERNAL), (external, COUNTED), (four, FOUR))),
        (10, attacks(losing, LOSSES)),
        (12, attacks(losing, UNSAID)),
        (12, attacks(sound, OPEN)),
    ]  # fmt: skip
    return [
        Attempt(group=f"exit {code}", name=name, ask=ask, right=frozenset({code}))
        for code, asks in found
        for name, ask in asks.items()
    ]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, the goal's row). quick: every tenth, which is no proof."""
    rounds, row = row_of(ID, outcomes(listed()[:: QUICK if quick else 1]), LEAST)
    return rounds, [row]


if __name__ == "__main__":
    for one, code in outcomes(listed()):
        print(one.name, one.right, code, sep=" | ")
