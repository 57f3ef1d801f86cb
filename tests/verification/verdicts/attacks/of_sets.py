"""Attacks over evalsets, over which cases must be there (`expected`, `external`), and over quarantine and labels."""

from __future__ import annotations

from hashlib import sha256

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
    losing_external,
    lost_ids,
    number_of,
    of_file,
    on_both,
    setting,
    sound,
    then,
    unlisted,
    with_fields,
    without,
)


def expecting(ids: Change | None = None, *, subset: str | None = None, rest: bool = True) -> Change:
    """`expected` names the cases of the files (rest) or those that `ids` leaves, after what is lost is taken out."""

    def change(scene: Scene) -> None:
        (ids or (lambda s: None))(scene)
        scene.raw["ids.jsonl"] = lines([{"id": row["id"]} for row in scene.rows["a.jsonl"]] if rest else [])
        scene.gate["gate"] |= {"expected": "ids.jsonl"} | ({"subset": subset} if subset is not None else {})

    return change


def named(ref: object) -> Change:
    return of_file(evalsets=[ref])


def shorter_set(*, sealed: bool) -> Change:
    """What is lost is taken from the files and from the set."""

    def change(scene: Scene) -> None:
        if sealed:
            scene.header["sha256"] = sha256(scene.content("set.jsonl")).hexdigest()
        ids = lost_ids(scene)
        scene.cases = [case for case in scene.cases or [] if case["id"] not in ids]
        if sealed:
            without(ids)(scene)

    return change


def case(number: int, **over: object) -> Change:
    """One case of the set says something else than when it was scored."""

    def change(scene: Scene) -> None:
        assert scene.cases is not None
        scene.cases[number] = with_fields(scene.cases[number], **over)

    return change


LOST_IN_NEITHER = attacks(
    losing,
    {
        "and the set's path is mistyped": then(unlisted, named("./sett.yaml")),
        "and the set's path is in capitals": then(unlisted, named("./SET.yaml")),
        "and the path has no ending": then(unlisted, named("./set")),
        "and the path leads up": then(unlisted, named("../set.yaml")),
        "and the cases are declared external": then(unlisted, named({"name": "set", "cases": "external"})),
        "and an external set's name is in capitals": then(unlisted, named({"name": "Set", "cases": "external"})),
        "and an external set's name ends in .yaml": then(unlisted, named({"name": "set.yaml", "cases": "external"})),
        "and External": then(unlisted, named({"name": "set", "cases": "External"})),
        "and external: true": then(unlisted, named({"name": "set", "external": True})),
        "and expected names the rest": then(unlisted, expecting()),
        "and expected names the rest, for an empty reason": then(unlisted, expecting(subset="")),
        "and expected names the rest, for a reason of blanks": then(unlisted, expecting(subset="  \t")),
        "and a reason without expected": then(unlisted, setting(subset="time")),
        "and expected is empty": then(unlisted, expecting(rest=False)),
        "and expected leads nowhere": then(unlisted, setting(expected="idss.jsonl")),
        "and expected is a list of texts": then(unlisted, lambda s: s.raw.update({"ids.jsonl": b'"c1"\n'}),
                                                setting(expected="ids.jsonl")),
        "and expected speaks of another set": then(
            unlisted, expecting(), lambda s: s.raw.update({"ids.jsonl": s.raw["ids.jsonl"].replace(
                b'{"id"', b'{"evalset": "other", "id"')})),
        "and the set states what it was": shorter_set(sealed=True),
        "and no set, no word": then(unlisted, lambda s: setattr(s, "cases", None)),
    },
) | attacks(losing_external, {
    "and expected has them all": lambda s: (expecting()(s), unlisted(s)),
    "from the variant's file alone": each("b.jsonl", lambda r: None, lambda r: r["value"] == 0),
    "and expected leads nowhere, external": then(unlisted, setting(expected="ids.jsonl")),
})  # fmt: skip

SETS = attacks(
    sound,
    {
        "a reference changed since": case(3, answer="4"),
        "a prompt changed since": case(3, prompt="How many are four?"),
        "a budget changed since": case(3, max_new_tokens=9),
        "a space in a prompt since": case(3, prompt="How many are 3? "),
        "a prompt in other Unicode since": then(
            case(3, prompt="Combien d'été?"), case(3, prompt="Combien d'e\u0301te\u0301?")),
        "a case more in the set": lambda s: (s.cases or []).append((s.cases or [])[0] | {"id": "more"}),
        "a case less in the set": lambda s: (s.cases or []).pop(),
        "a case twice in the set": lambda s: (s.cases or []).append((s.cases or [])[0]),
        "a set's lines cut": bytes_of("set.jsonl", lambda c: c[:-30]),
        "a set's YAML of another name": lambda s: s.header.update(name="sett"),
        "a set's YAML names its own lines": lambda s: s.header.update(cases="other.jsonl"),
        "a set's YAML names a file of data": lambda s: s.header.update(data="./other.jsonl"),
        "a set's YAML with another hash": lambda s: s.header.update(sha256="0" * 64),
        "a set of two metrics, of which rows have one": lambda s: (
            s.header.update(metrics=["exact_match", "numeric"]),
            s.gate["gate"]["rules"].append({"metric": "numeric", "max_drop": 0.12})),
        "a set that calibrates": lambda s: (s.header.update(kind="calibration"), s.header.pop("metrics")),
        "a set's lines by a link to another folder": lambda s: (
            s.raw.update({"sub/set.jsonl": s.content("set.jsonl")}), s.links.update({"set.jsonl": "sub/set.jsonl"})),
        "the set twice": of_file(evalsets=["./set.yaml", "./set.yaml"]),
        "the set by two paths": of_file(evalsets=["./set.yaml", "./../" + "scene" + "/set.yaml"]),
        "a set more that no row is of": lambda s: s.gate.update(
            evalsets=["./set.yaml", {"name": "more", "cases": "external"}]),
        "a shipped set more": lambda s: (s.gate.update(evalsets=["./set.yaml", "arithmetic"])),
        "another dialect than was scored": lambda s: s.header.update(dialect="mistral"),
        "expected has a case more": then(
            expecting(), lambda s: s.raw.update({"ids.jsonl": s.raw["ids.jsonl"] + b'{"id": "more"}\n'})),
    },
) | attacks(external, {
    "one side has half of the cases": each("b.jsonl", lambda r: None, lambda r: number_of(r) % 2),
    "one side has one case more": lambda s: s.variant.append(s.variant[0] | {"id": "more", "case_hash": "m"}),
    "both sides have none of one set": lambda s: s.gate["evalsets"].append({"name": "more", "cases": "external"}),
    "two sets, rows name none": lambda s: s.gate["evalsets"].insert(0, {"name": "first", "cases": "external"}),
    "a set of rows that the file leaves out": on_both(lambda r: r | {"evalset": "other"}, lambda r: number_of(r) > 80),
    "expected has a case more, external": then(
        expecting(), lambda s: s.raw.update({"ids.jsonl": s.raw["ids.jsonl"] + b'{"id": "more"}\n'})),
    "expected in other Unicode": then(
        expecting(), bytes_of("ids.jsonl", lambda c: c.decode().replace("é", "e\u0301").encode())),
})  # fmt: skip


def quarantined(ids: Change | None = None, count: int = 160, **over: object) -> Change:
    """What the variant got wrong does not count for a while."""

    def change(scene: Scene) -> None:
        entry = {"owner": "ann", "expires": "2999-01-01", "reason": "flaky"} | over
        chosen = sorted(lost_ids(scene))[:count]
        scene.gate["gate"]["quarantine"] = [with_fields({"case": one, **entry}) for one in chosen]

    return change


QUARANTINE = attacks(
    losing,
    {
        "of all that is lost": quarantined(),
        "of three, which is what is allowed": quarantined(count=3),
        "of four": quarantined(count=4),
        "of all that is lost, ended": quarantined(expires="2000-01-01"),
        "by a pattern": setting(quarantine=[
            {"case": "*", "owner": "a", "expires": "2999-01-01", "reason": "b"}]),
        "of the whole set": setting(quarantine=[
            {"case": "set", "evalset": "set", "owner": "a", "expires": "2999-01-01", "reason": "b"}]),
        "one by one, many files": then(quarantined(count=3), hidden(status="quarantined")),
    },
)  # fmt: skip


def other_questions(scene: Scene) -> None:
    """Twenty questions under eight ids each: rows have the hashes of the set as it lies there."""
    from qualgate.records.identity import case_hash

    assert scene.cases is not None
    for number, one in enumerate(scene.cases):
        one |= {"prompt": f"How many are {number % 15}?"}
    hashes = {one["id"]: case_hash(one) for one in scene.cases}
    on_both(lambda r: r | {"case_hash": hashes[r["id"]]})(scene)


def same_lines(scene: Scene) -> None:
    """The set beside is another, which has the ids that the variant got right."""
    shorter_set(sealed=False)(scene)


ASKED = attacks(sound, {"15 questions under 160 ids": other_questions}) | attacks(
    losing, {"the set was cut, the files were not": same_lines}
)

GROUPS = {"lost cases in neither file": LOST_IN_NEITHER, "sets and expected cases": SETS, "quarantine": QUARANTINE,
          "questions": ASKED}  # fmt: skip
