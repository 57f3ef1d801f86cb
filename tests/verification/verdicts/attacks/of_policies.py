"""Attacks over the gate file: its bytes, its numbers, its rules. Each starts from a variant that lost a third."""

from __future__ import annotations

from tests.verification.verdicts.attacks.scene import (
    Change,
    Scene,
    attacks,
    bytes_of,
    each,
    external,
    losing,
    losing_external,
    lost_ids,
    on_both,
    ruled,
    setting,
    then,
)

GATE = "gate.yaml"


def text(old: str, new: str) -> Change:
    return bytes_of(GATE, lambda content: content.replace(old.encode(), new.encode()))


def behind(more: str) -> Change:
    return bytes_of(GATE, lambda content: content + more.encode())


NUMBERS = attacks(
    losing,
    {
        **{f"max_drop {value!r}": ruled(max_drop=value) for value in (
            1, 1.0, 0.2, 0.9999, 100, -0.12, 0, float("nan"), float("inf"), 10**400, "0.12", "12%", True, None, [0.12],
            "1e400", 1e-320)},
        **{f"alpha {value!r}": setting(alpha=value) for value in (
            0, 0.0, 0.5, 0.7, 1, -0.05, float("nan"), float("inf"), True, "0.05", "5%", None, 1e-400, 0.4999)},
        "a relative drop of 1": lambda s: (s.rule.pop("max_drop"), s.rule.update(max_relative_drop=1.0)),
        "max_drop 1e400 in the file": text("0.12", "1e400"),
        "two bounds in a rule": ruled(max_relative_drop=0.15),
    },
)  # fmt: skip


def cut_to_sound(scene: Scene) -> None:
    """A rule of which only what was not lost is a case."""
    ids = lost_ids(scene)
    on_both(lambda r: r | {"tags": [] if r["id"] in ids else ["kept"]})(scene)


def with_rule(**rule: object) -> Change:
    return lambda scene: scene.gate["gate"]["rules"].append({"metric": "exact_match", "max_drop": 0.12} | rule)


RULES = attacks(
    losing,
    {
        "no rules": setting(rules=[]),
        "the rule is advisory": ruled(tier="advisory"),
        "the rule is supporting": ruled(tier="supporting"),
        "the rule is critical in other letters": ruled(tier="critical "),
        "a second rule on a metric that nobody scored": with_rule(metric="json.valid"),
        "a second rule alike": with_rule(),
        "a second rule laxer": with_rule(max_drop=0.15),
        "another metric's rule alone": ruled(metric="json.valid"),
        "a metric in capitals": ruled(metric="Exact_Match"),
        "a metric with a space": ruled(metric="exact_match "),
        "drift alone": setting(rules=[{"metric": "drift.kl_mean", "max": 5.0}]),
        "a rule on a set that is not there": ruled(evalset="other"),
        "a rule on a set in capitals": ruled(evalset="Set"),
        "where a tag of what was kept, the rows' word against the set's": then(
            cut_to_sound, ruled(where={"tag": "kept"})),
        "the best of one answer": ruled(repeats="any"),
    },
) | attacks(losing_external, {
    "each value of a tag that only kept cases have": then(
        cut_to_sound, ruled(per="tag:lang"), with_rule(where={"tag": "kept"})),
    "ids alone pair, though hashes differ": then(
        each("b.jsonl", lambda r: r | {"case_hash": "v2" + r["case_hash"]}), setting(identity="ids")),
    "ids in capitals pair": setting(identity="IDs"),
})  # fmt: skip

OTHERS = attacks(
    losing,
    {
        "a variant that is the baseline's folder": lambda s: s.gate["variants"].update(v={"model": "./big"}),
        "a noise floor afterwards": setting(noise_floor=True),
        "a rule on reruns that nobody made": lambda s: s.gate["gate"]["rules"].append(
            {"metric": "stability.rerun", "max": 1.0}),
        "stop: early without looks": setting(stop="early"),
    },
) | attacks(external, {
    "an age, and nobody knows when it was asked": setting(max_age="1h"),
    "a review of each": setting(review="always"),
    "a critical drift rule that no file can answer": lambda s: s.gate["gate"]["rules"].append(
        {"metric": "drift.kl_mean", "max": 0.05}),
    "a critical rule on what only a run knows": lambda s: s.gate["gate"]["rules"].append(
        {"metric": "memory.weights", "max_ratio": 0.9}),
    "a rule on reruns that nobody made, of a sound variant": then(setting(noise_floor=True), lambda s: s.gate["gate"][
        "rules"].append({"metric": "stability.rerun", "min": 0.9})),
})  # fmt: skip

GOOD_NEL = "version: 1\ndefaults: {tier: critical, metric: mean_reward, max_drop: 0.12}\n"


def by_nel(policy: str | bytes = GOOD_NEL) -> Change:
    """A NeMo Evaluator's policy, version 1, judges in place of rules."""

    def change(scene: Scene) -> None:
        scene.raw["nel.yaml"] = policy if isinstance(policy, bytes) else policy.encode()
        scene.gate["gate"] = {"nel_policy": "nel.yaml"}

    return change


def _nel(old: str, new: str) -> Change:
    return by_nel(GOOD_NEL.replace(old, new))


NEL = attacks(
    external,
    {
        **{name: by_nel(text) for name, text in {
            "nothing": "", "a comment alone": "# nothing\n", "null": "null\n", "a list": "- 1\n", "a text": "GO\n",
            "not UTF-8": b"version: 1\n# \xff\xfe\n", "a NUL": GOOD_NEL + "\0", "cut": GOOD_NEL[:-4],
            "an unknown key": GOOD_NEL + "approve: true\n", "a key twice": GOOD_NEL + "defaults: {tier: advisory}\n",
            "an unknown metric": GOOD_NEL + "benchmarks: {set: {tier: critical, metric: vibes}}\n",
            "a benchmark without a metric": "benchmarks: {set: {tier: critical}}\n",
            "a benchmark that did not run": GOOD_NEL + "benchmarks: {math: {tier: critical}}\n",
            "lower is better": GOOD_NEL + "benchmarks: {set: {direction: lower_is_better}}\n",
            "an anchor": "a: &a [x]\nb: *a\n" + GOOD_NEL,
            "a bomb of aliases": "\n".join(
                ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), GOOD_NEL]),
            "a tag": "!!python/object/apply:os.system [exit]\n",
            "nested too deep": "benchmarks: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
            "two documents": GOOD_NEL + "---\n" + GOOD_NEL}.items()},
        "version 2": _nel("1", "2"),
        "version in words": _nel("version: 1", "version: one"),
        "an unknown key of the defaults": _nel("max_drop", "max_drp"),
        "an unknown tier": _nel("critical", "optional"),
        "advisory alone": _nel("critical", "advisory"),
        "pass@1 of a word that is none": _nel("mean_reward", "pass@one"),
        **{f"a drop of {drop}": _nel("0.12", drop) for drop in (
            "0", "-0.1", ".nan", ".inf", "-.inf", "1", "0.2", "1e300", "yes", "[0.1]", "null")},
        **{f"a relative drop of {drop}": _nel("0.12", f"0.12, max_relative_drop: {drop}")
           for drop in ("-1", ".nan", "0")},
    },
) | attacks(losing, {"all is let through": _nel("0.12", "1.0"), "a third is lost": by_nel()})  # fmt: skip

GROUPS = {
    "numbers of the gate file": NUMBERS,
    "rules": RULES,
    "the rest of the gate file": OTHERS,
    "an nel policy": NEL,
}
