"""Attacks over single rows: what an id, a value, a repeat, an end, a cluster or a label says."""

from __future__ import annotations

import unicodedata
from hashlib import sha256

from tests.verification.verdicts.attacks.scene import (
    CASES,
    Change,
    Row,
    Scene,
    attacks,
    both,
    each,
    everywhere,
    external,
    hidden,
    losing,
    lost_ids,
    number_of,
    of_file,
    on_both,
    ruled,
    setting,
    sound,
    then,
    with_fields,
    without,
    wrong,
)


def renamed(how: str) -> Change:
    """The variant's wrong answers go by an id that looks the same."""
    ways = {
        "decomposed": lambda text: unicodedata.normalize("NFD", text),
        "zero width": lambda text: text + "\u200b",
        "no-break space": lambda text: text + "\u00a0",
        "a space before": lambda text: " " + text,
        "upper case": str.upper,
        "cyrillic": lambda text: text.replace("c", "с"),
        "full width": lambda text: text.translate({ord(str(n)): 0xFF10 + n for n in range(10)}),
        "a soft hyphen": lambda text: "\u00ad" + text,
        "turned around": lambda text: "\u202e" + text,
        "a NUL": lambda text: text + "\0",
    }
    return each("b.jsonl", lambda row: row | {"id": ways[how](row["id"])}, wrong)


def ids_of_right_ones(scene: Scene) -> None:
    """Wrong answers are handed in under the ids of cases that the baseline has wrong as well."""
    bad = [row["id"] for row in scene.rows["a.jsonl"] if wrong(row)]
    for at, row in enumerate(row for row in scene.variant if wrong(row)):
        row["id"] = bad[at % len(bad)]


def rotated_hashes(scene: Scene) -> None:
    """Every row names the next case's hash."""
    hashes = [row["case_hash"] for row in scene.variant]
    for row, other in zip(scene.variant, hashes[1:] + hashes[:1], strict=True):
        row["case_hash"] = other


def rotated_values(scene: Scene) -> None:
    """Hashes and values go together, under the ids of others: right answers twice, lost ones never."""
    good = [row for row in scene.variant if not wrong(row)]
    for at, row in enumerate(row for row in scene.variant if wrong(row)):
        row |= {key: good[at][key] for key in ("value", "verdict", "error_type", "case_hash")}


IDS = attacks(
    losing,
    {
        **{f"lost answers under an id {how}": renamed(how) for how in (
            "decomposed", "zero width", "no-break space", "a space before", "upper case", "cyrillic", "full width",
            "a soft hyphen", "turned around", "a NUL")},
        "lost answers under a number for an id": hidden(id=7),
        "lost answers under an empty id": hidden(id=""),
        "lost answers under the ids of what is wrong on both": ids_of_right_ones,
        "lost answers replaced by right ones with their hashes": rotated_values,
        "lost cases in neither file, the set beside": lambda s: without(lost_ids(s))(s),
        "lost cases in another evalset": hidden(evalset="other"),
        "lost cases in an evalset of other case": hidden(evalset="Set"),
        "lost cases in an evalset with a space": hidden(evalset="set "),
    },
) | attacks(sound, {
    "every hash is the next case's": rotated_hashes,
    "ids decomposed on the variant's side": each(
        "b.jsonl", lambda row: row | {"id": unicodedata.normalize("NFD", row["id"])}),
    "hashes in capital letters on one side": each("b.jsonl", lambda row: row | {"case_hash": row["case_hash"].upper()}),
    "hashes cut to 16 digits on one side": each("b.jsonl", lambda row: row | {"case_hash": row["case_hash"][:16]}),
})  # fmt: skip

SAID: dict[str, dict[str, object]] = {
    "a text of one": {"value": "1", "verdict": ...},
    "a text of true": {"value": "true", "verdict": ...},
    "true beside a false verdict": {"value": True},
    "true beside an error type": {"value": True, "verdict": ...},
    "1 beside a verdict of 0": {"value": 1, "verdict": 0},
    "a verdict of true alone": {"value": ..., "verdict": True},
    "a verdict of true beside 0": {"verdict": True},
    "a verdict of 1": {"value": 1, "verdict": 1, "error_type": ""},
    "infinity": {"value": float("inf"), "verdict": ..., "error_type": ""},
    "minus infinity": {"value": float("-inf"), "verdict": ..., "error_type": ""},
    "NaN": {"value": float("nan"), "verdict": ..., "error_type": ""},
    "a number of 400 digits": {"value": 10**400, "verdict": ..., "error_type": ""},
    "two": {"value": 2, "verdict": True, "error_type": ""},
    "one and a little": {"value": 1.0000000000000002, "verdict": ..., "error_type": ""},
    "almost one": {"value": 0.9999999999999999, "verdict": ..., "error_type": ""},
    "half": {"value": 0.5, "verdict": ..., "error_type": ""},
    "below nothing": {"value": -1, "verdict": ..., "error_type": ""},
    "less than the smallest double": {"value": 5e-324, "verdict": ..., "error_type": ""},
    "an object": {"value": {"value": 1}, "verdict": ...},
    "a list": {"value": [1], "verdict": ...},
    "null and a verdict of true": {"value": None, "verdict": True},
    "null and no word why": {"value": None, "verdict": None, "error_type": ""},
    "null and a crash": {"value": None, "verdict": None, "error_type": "scorer_crashed"},
    "null, where a timeout is no answer": {"value": None, "verdict": None, "error_type": "timeout"},
    "another metric": {"metric": "numeric"},
    "the metric in capitals": {"metric": "Exact_Match"},
    "the metric with a space": {"metric": "exact_match "},
    "an error of their own": {"value": 1, "verdict": True, "error_type": "", "error": "timeout"},
    "an error that is an object": {"value": 1, "verdict": True, "error_type": "", "error": {"code": 500}},
    "a status of ok": {"value": 1, "verdict": True, "error_type": "", "status": "ok"},
    "a status in capitals": {"value": 1, "verdict": True, "error_type": "", "status": "DONE"},
    "that they were skipped": {"status": "skipped"},
    "that a filter ended them": {"finish_reason": "content_filter"},
    "that the server ended them": {"finish_reason": "abort"},
    "that they ended as nothing does": {"finish_reason": "eos "},
}
VALUES = attacks(losing, {f"lost answers say {name}": hidden(**over) for name, over in SAID.items()}) | attacks(
    sound,
    {
        "minus nothing beside a verdict of true": each("b.jsonl", lambda row: row | {"value": -0.0, "verdict": True}),
        "both sides' scores in percent": on_both(lambda row: row | {"value": 100 * row["value"]}),
        "the baseline's right answers null": each(
            "a.jsonl", lambda row: row | {"value": None, "verdict": None}, lambda row: not wrong(row)
        ),
        "both sides null throughout": on_both(lambda row: with_fields(
            row, value=None, verdict=None, error_type="no_reference")),
        **{f"the baseline's answers say {name}": each("a.jsonl", lambda row, over=over: with_fields(row, **over))
           for name, over in SAID.items()},
        "the baseline wrong throughout": each("a.jsonl", lambda row: with_fields(row, value=0, verdict=False)),
        "both sides right on a tenth": on_both(
            lambda row: with_fields(row, value=1 - row["value"], verdict=..., error_type="")),
    },
)  # fmt: skip


def nulls_on_both(scene: Scene) -> None:
    """What the variant got wrong was not judged on either side."""
    ids = lost_ids(scene)
    on_both(lambda row: with_fields(row, value=None, verdict=None, error_type="timeout"),
                           lambda row: row["id"] in ids)(scene)  # fmt: skip


def baseline_null(scene: Scene) -> None:
    """The baseline's answers to what the variant got wrong were not judged."""
    ids = lost_ids(scene)
    each("a.jsonl", lambda row: with_fields(row, value=None, verdict=None, error_type="timeout"),
         lambda row: row["id"] in ids)(scene)  # fmt: skip


NULLS = attacks(losing, {"lost answers null on both sides": nulls_on_both, "and on the baseline's": baseline_null})


def repeated(count: int, of: str = "ab", first: int = 0) -> Change:
    """Each case answered so often, alike each time."""

    def change(scene: Scene) -> None:
        for name in [f"{side}.jsonl" for side in of]:
            scene.rows[name] = [row | {"repeat": first + n} for row in scene.rows[name] for n in range(count)]

    return change


def _numbered(number: object) -> Change:
    return then(repeated(2), each("b.jsonl", lambda row: row | {"repeat": number}, lambda row: row["repeat"] == 1))


def lost_asked_once(scene: Scene) -> None:
    """Of what is lost one answer, of the others four, on both sides."""
    ids = lost_ids(scene)
    repeated(4)(scene)
    on_both(lambda row: None, lambda row: row["id"] in ids and row["repeat"] > 0)(scene)


def better_of_two(scene: Scene) -> None:
    """The variant's wrong answers are tried again until right; the baseline answers once."""
    scene.rows["b.jsonl"] += [
        row | {"value": 1.0, "verdict": True, "error_type": "", "repeat": 1} for row in scene.variant if wrong(row)
    ]


four = of_file(generation={"temperature": 0.7, "repeats": 4})
REPEATS = attacks(
    sound,
    {
        "3 of 4 repeats": then(repeated(3), four),
        "1 of 4 repeats": four,
        "5 of 4 repeats": then(repeated(5), four),
        "4 of 4 on one side, 3 on the other": then(repeated(4, "a"), repeated(3, "b"), four),
        "from 0 on one side, from 1 on the other": then(repeated(4, "a"), repeated(4, "b", 1), four),
        "from 1 on the variant's side, nothing stated": then(repeated(2, "a"), repeated(2, "b", 1)),
        "from 2 on both": then(repeated(4, first=2), four),
        "a gap in the numbers": then(repeated(4), on_both(lambda r: r | {"repeat": 4}, lambda r: r["repeat"] == 3)),
        "a repeat of -1": _numbered(-1),
        "a repeat beyond any machine": _numbered(10**30),
        "the best of one answer": then(ruled(repeats="any")),
        "every one of one answer": then(ruled(repeats="all")),
    },
) | attacks(
    losing,
    {
        "what is lost was asked once, the rest four times": lost_asked_once,
        "tried again until right": better_of_two,
        "tried again until right, two stated": then(
            better_of_two, of_file(generation={"temperature": 0.7, "repeats": 2})),
        "the best of two, which the baseline lacks": then(better_of_two, ruled(repeats="any")),
        "twice, the better one second": lambda s: s.variant.extend(
            row | {"value": 1.0, "verdict": True, "error_type": ""} for row in list(s.variant) if wrong(row)),
    },
)  # fmt: skip


def shared(count: int) -> Change:
    """The set's cases are of so many passages, and rows say so."""

    def change(scene: Scene) -> None:
        from qualgate.records.identity import case_hash

        for number, case in enumerate(scene.cases or []):
            case["cluster"] = f"p{number % count}"
        by_id = {case["id"]: case for case in scene.cases or []}
        for row in (row for rows in scene.rows.values() for row in rows):
            row |= {"case_hash": case_hash(by_id[row["id"]]), "cluster": by_id[row["id"]]["cluster"]}

    return change


def _own_cluster(row: Row) -> Row:
    return row | {"cluster": row["id"]}


def twelve_in_many_sets(scene: Scene) -> None:
    """The same twelve questions in each set."""
    scene.gate["evalsets"] = [{"name": f"s{number}", "cases": "external"} for number in range(13)]
    on_both(lambda r: r | {
        "id": f"é-c{number_of(r) % 12}", "case_hash": f"h{number_of(r) % 12}",
        "evalset": f"s{number_of(r) // 12}"})(scene)  # fmt: skip


def times_alone(scene: Scene) -> None:
    """Of one set more there are times, and no scores."""
    scene.gate["evalsets"].append({"name": "more", "cases": "external"})
    for rows in scene.rows.values():
        rows += [
            {"id": row["id"], "evalset": "more", "metric": "latency.e2e", "value": 1.0, "case_hash": row["case_hash"]}
            for row in list(rows)
        ]


CLUSTERS = attacks(
    sound,
    {
        "12 passages": shared(12),
        "12 passages, left out in the rows": then(shared(12), on_both(lambda r: with_fields(r, cluster=...))),
        "12 passages, rows say each its own": then(shared(12), on_both(_own_cluster)),
        "clusters of which the set knows nothing": on_both(lambda r: r | {"cluster": "p"}),
        "a cluster that is an empty text, on one side": everywhere(cluster=""),
    },
) | attacks(
    external,
    {
        "clusters on one side alone": everywhere(cluster="p"),
        "all in one cluster": on_both(lambda r: r | {"cluster": "p"}),
        "twelve clusters": on_both(lambda r: r | {"cluster": f"p{number_of(r) % 12}"}),
        "ten cases, none of them lost": on_both(lambda r: r if number_of(r) in range(1, 10) else None),
        "12 questions under many ids, in clusters": on_both(lambda r: r |
            {"case_hash": f"h{number_of(r) % 12}", "cluster": f"c{number_of(r) // 12}"}),
        "12 questions many times each": on_both(lambda r: r | {
            "id": f"é-c{number_of(r) % 12}", "repeat": number_of(r) // 12, "case_hash": f"h{number_of(r) % 12}"}),
        "12 questions in many evalsets": twelve_in_many_sets,
        "an evalset of times alone": times_alone,
        "12 questions under many ids": on_both(lambda r: r | {"case_hash": f"h{number_of(r) % 12}"}),
        "no hash on either side": on_both(lambda r: with_fields(r, case_hash=...)),
        "a hash on the baseline's side alone": everywhere(case_hash=...),
        "an empty hash": on_both(lambda r: r | {"case_hash": ""}),
        "two versions of a scorer": everywhere(scorer="exact_match/2"),
        "two versions of a scorer in one file": both(lambda n: each(
            n, lambda r: r | {"scorer": "exact_match/2"}, lambda r: number_of(r) == (9 if n[0] == "a" else 8))),
        "a scorer on one side alone": everywhere(scorer=...),
    },
)  # fmt: skip

UNFINISHED: dict[str, dict[str, object]] = {
    "cut off": {"finish_reason": "MAX_TOKENS"},
    "empty": {"unanswered": "empty"},
    "not found by the filter": {"unanswered": "unfiltered"},
    "of no token": {"tokens": 0},
    "without text": {"text_sha256": sha256(b"").hexdigest()},
    "failed at the endpoint": {"result": "Error during inference: Error code: 429"},
}
ENDS = attacks(
    sound,
    {
        **{f"{many} of the {side}'s answers {ways}": each(file, lambda r, said=said: r | said,
                                                          lambda r, step=step: number_of(r) % step == 0)
           for side, file in (("baseline", "a.jsonl"), ("variant", "b.jsonl"))
           for many, step in (("all", 1), ("a tenth", 10))
           for ways, said in UNFINISHED.items()},
        "the variant cut off, though a tenth may be": then(everywhere(finish_reason="length"),
                                                           setting(max_unfinished=0.1)),
        "the variant cut off, looked at early": then(everywhere(finish_reason="length"), setting(stop="early")),
        "one answer ended by the server": each(
            "a.jsonl", lambda r: r | {"finish_reason": "abort"}, lambda r: r["id"] == "é-c5"),
        "all held out for a while": setting(quarantine=[
            {"case": f"é-c{n}", "owner": "x", "expires": "2999-01-01", "reason": "y"} for n in range(CASES)]),
    },
)  # fmt: skip

GROUPS = {"ids": IDS, "values": VALUES, "nulls": NULLS, "repeats": REPEATS, "clusters and hashes": CLUSTERS,
          "ends": ENDS}  # fmt: skip
