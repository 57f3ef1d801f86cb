"""Attacks over four arms' files: who is which arm, what was drafted, and what an answer cost."""

from __future__ import annotations

from tests.verification.verdicts.attacks.scene import (
    Change,
    Scene,
    attacks,
    bytes_of,
    each,
    external,
    number_of,
    then,
    with_fields,
)

FILES = {"a.jsonl": 10.0, "q.jsonl": 10.0, "s.jsonl": 7.0, "x.jsonl": 4.0}  # seconds of an answer
ARMS = (("int4", "q.jsonl"), ("drafted", "s.jsonl"), ("both", "x.jsonl"))
S, X = "s.jsonl", "x.jsonl"


def four() -> Scene:
    """Approves both: speculation changes no answer, quantization no score, and it saves nothing by itself. What is
    attacked is both arms that draft, so that no other may be approved."""
    scene = external()
    plain = scene.rows.pop("b.jsonl") and scene.rows["a.jsonl"]
    for turn, (name, seconds) in enumerate(FILES.items()):
        drafts = {"draft_proposed": 6, "draft_accepted": 4} if name in (S, X) else {}
        ids = [1, 2, 3 if name in ("q.jsonl", X) else 4]
        scene.rows[name] = [
            row | drafts | {
                "model": name, "token_ids": ids, "batch": at // 4, "started": 10 * (at // 4) + turn, "e2e": seconds,
                "ttft": 0.1, "attempts": [
                    {"outcome": "done", "prompt_tokens": 9, "output_tokens": 3, "seconds": seconds}],
            }
            for at, row in enumerate(plain)
        ]  # fmt: skip
    scene.raw["prices.yaml"] = b'version: "2026-11"\ncurrency: EUR\ndevice_second: 1.0\nconcurrency: 1\n'
    scene.gate |= {
        "variants": {name: {"model": f"./{name}"} for name, _ in ARMS},
        "four_arm": {"quantization": "int4", "speculation": "drafted", "both": "both"},
        "prices": "prices.yaml",
    }
    scene.options["arm"] = list(ARMS)
    return scene


def losing_four() -> Scene:
    """Both speculating arms lost a third of what is right."""
    scene = four()
    for name in (S, X):
        lose(name)(scene)
    return scene


def lose(name: str) -> Change:
    return each(name, lambda row: row | {"value": 0.0, "verdict": False, "error_type": "different"},
                lambda row: number_of(row) < 54)  # fmt: skip


def undrafted(*names: str) -> Change:
    """These files do not say what was drafted."""
    return then(*(each(name, lambda row: with_fields(row, draft_proposed=..., draft_accepted=...)) for name in names))


def declared(**drafting: object) -> Change:
    return lambda scene: scene.gate["four_arm"].update(drafting=drafting)


def files(**order: str) -> Change:
    return lambda scene: scene.options.update(arm=[(name, order.get(name, file)) for name, file in ARMS])


def option(**over: object) -> Change:
    return lambda scene: scene.gate["four_arm"].update(over)


def other_answers(name: str) -> Change:
    """The arm's tokens are not its target's."""
    return each(name, lambda row: row | {"token_ids": [1, 2, 9]}, lambda row: row["id"].endswith("7"))


def a_copy_of(theirs: str, name: str) -> Change:
    return lambda scene: scene.rows.update({name: [dict(row) for row in scene.rows[theirs]]})


ENOUGH = {"proposed": 900, "accepted": 500}
DRAFTS = attacks(
    four,
    {
        "nothing says that anything was drafted": undrafted(S, X),
        "one arm says nothing of its drafts": undrafted(S),
        "a copy of the baseline speculates": then(
            a_copy_of("a.jsonl", S), each(S, lambda row: row | {"model": S})),
        "nothing was proposed": then(
            each(S, lambda r: r | {"draft_proposed": 0, "draft_accepted": 0}),
            each(X, lambda r: r | {"draft_proposed": 0, "draft_accepted": 0})),
        "the baseline drafted": each("a.jsonl", lambda r: r | {"draft_proposed": 5, "draft_accepted": 1}),
        "the arm quantized alone drafted": each("q.jsonl", lambda r: r | {"draft_proposed": 5, "draft_accepted": 1}),
        "more was kept than proposed": each(S, lambda r: r | {"draft_accepted": 7}),
        "kept, and nothing proposed": each(S, lambda r: with_fields(r, draft_proposed=...)),
        "declared of the baseline": then(undrafted(S, X), declared(baseline=ENOUGH)),
        "declared of the arm quantized alone": then(undrafted(S, X), declared(int4=ENOUGH)),
        "declared of one arm of two": then(undrafted(S, X), declared(drafted=ENOUGH)),
        **{f"declared as {one!r:.60}": then(undrafted(S, X), declared(drafted=one, both=ENOUGH)) for one in (
            {"proposed": 5, "accepted": 6}, {"proposed": 0, "accepted": 0}, {"proposed": -5, "accepted": -6},
            {"proposed": 5, "accepted": -1},
            {"proposed": 5.5, "accepted": 2}, {"proposed": "9", "accepted": "5"}, {"proposed": True, "accepted": True},
            {"proposed": 9}, {"accepted": 9}, {}, None, 9, {"proposed": float("inf"), "accepted": 5},
            {"proposed": 9, "acepted": 5})},
        "declared below what rows counted": declared(drafted={"proposed": 5, "accepted": 1}, both=ENOUGH),
        "declared against rows that drafted nothing": then(
            each(S, lambda r: r | {"draft_proposed": 0, "draft_accepted": 0}), declared(drafted=ENOUGH)),
    },
)  # fmt: skip

WHO = attacks(
    four,
    {
        "both's file is the speculation's": files(both=S),
        "one file for three arms": files(int4=X, drafted=X),
        "an arm's file by a link to the baseline's": lambda s: s.links.update({S: "a.jsonl"}),
        "two arms given": lambda s: s.options.update(arm=list(ARMS[:2])),
        "an arm called baseline": lambda s: s.options.update(arm=[*ARMS[:2], ("baseline", X)]),
        "arms that are named twice": option(both="drafted"),
        "the quantized file for the speculating arm": files(int4=S, drafted="q.jsonl"),
        "one variant alone of four arms": lambda s: (
            s.options.clear(), s.rows.update({"b.jsonl": s.rows[X]})),
        "speculation changed answers": then(other_answers(S), other_answers(X)),
        "no saving asked": option(min_saving=-1.0),
        **{f"a saving of {saving}": option(min_saving=saving) for saving in (float("nan"), float("inf"), 0.9, 1.0)},
        "a role of its own and in the section": lambda s: s.gate["variants"]["int4"].update(arm="both"),
    },
) | attacks(losing_four, {
    "and the section is left out": lambda s: (s.gate.pop("four_arm")),
    "and parity is lossy": option(parity="lossy"),
    "and parity is sampled": option(parity="sampled"),
    "and the arms' files go round": files(int4=S, drafted=X, both="q.jsonl"),
    "and the lost rows are left out": then(*(
        each(name, lambda r: None, lambda r: r["value"] == 0) for name in (S, X))),
    "and one arm's were tried again": then(each(S, lambda r: r | {
        "value": 1.0, "verdict": True, "error_type": "", "repeat": 1}, lambda r: r["value"] == 0)),
})  # fmt: skip

COST = attacks(
    four,
    {
        "every arm costs the same": then(*(each(n, lambda r: r | {"attempts": [
            {"outcome": "done", "prompt_tokens": 9, "output_tokens": 3, "seconds": 9.0}]}) for n in FILES)),
        "attempts of minus seconds": each(X, lambda r: r | {"attempts": [{"outcome": "done", "seconds": -4.0}]}),
        "attempts of NaN": each(X, lambda r: r | {"attempts": [{"outcome": "done", "seconds": float("nan")}]}),
        "attempts that all failed": then(*(each(n, lambda r: r | {"attempts": [
            {"outcome": "failed", "seconds": 0.1}]}) for n in (S, X))),
        "attempts that were all given up": then(*(each(n, lambda r: r | {"attempts": [
            {"outcome": "cancelled", "seconds": 0.1}] * 2}) for n in (S, X))),
        "attempts left out": then(*(each(n, lambda r: with_fields(r, attempts=..., e2e=...)) for n in FILES)),
        **{f"a price of {price.decode()}": bytes_of("prices.yaml", lambda c, price=price: c.replace(b"1.0", price))
           for price in (b".nan", b".inf", b"-1", b"0")},
        "no answers at a time": bytes_of("prices.yaml", lambda c: c.replace(b"concurrency: 1", b"concurrency: 0")),
    },
)  # fmt: skip

GROUPS = {"drafts": DRAFTS, "who is which arm": WHO, "four arms' cost": COST}
