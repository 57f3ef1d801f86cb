"""Attacks over bytes and lines of score files, over their keys, and over copies, models and what serving is said of."""

from __future__ import annotations

import gzip

from tests.verification.verdicts.attacks.scene import (
    Change,
    Scene,
    attacks,
    both,
    bytes_of,
    each,
    everywhere,
    external,
    hidden,
    losing,
    number_of,
    on_both,
    sound,
    then,
    with_fields,
    wrong,
)

B = "b.jsonl"
ONE = b'"value": 1.0'


def again(text: str) -> Change:
    """Wrong rows as text, with something put in before their last brace."""

    def change(content: bytes) -> bytes:
        found = [line[:-1] + text.encode() + b"}" if b'"value": 0.0' in line else line for line in content.split(b"\n")]
        return b"\n".join(found)

    return bytes_of(B, change)


BYTES = attacks(
    sound,
    {
        "cut in the middle of a number": bytes_of(B, lambda c: c[: c.rindex(b'"value"') + 11]),
        "cut behind the last brace but one line": bytes_of(B, lambda c: c[: c.rstrip().rindex(b"\n")]),
        "one array of all rows": bytes_of(B, lambda c: b"[" + c.strip().replace(b"\n", b",\n") + b"]"),
        "a byte-order mark before every line": bytes_of(B, lambda c: c.replace(b"{", b"\xef\xbb\xbf{")),
        "two byte-order marks": bytes_of(B, lambda c: b"\xef\xbb\xbf" * 2 + c),
        "Latin-1": bytes_of(B, lambda c: c.decode().encode("latin-1")),
        "NULs in place of the last lines": bytes_of(B, lambda c: c[:-600] + b"\0" * 600),
        "gzip behind a byte-order mark": bytes_of(B, lambda c: b"\xef\xbb\xbf" + gzip.compress(c)),
        **{f"{what}, {name}": bytes_of(name, lambda c, content=content: content)
           for what, content in (("nothing", b""), ("blank lines", b"\n\n")) for name in ("a.jsonl", B)},
        "the baseline's cut": bytes_of("a.jsonl", lambda c: c[: len(c) // 2]),
        "an empty object": bytes_of(B, lambda c: c + b"{}\n"),
        "blank lines of form feeds inside": bytes_of(B, lambda c: c.replace(b"}\n", b"}\n\x0c\n", 1)),
        "1e400": bytes_of(B, lambda c: c.replace(ONE, b'"value": 1e400')),
    },
) | attacks(
    losing,
    {
        "a value twice, right the second time": again(', "value": 1.0, "verdict": true'),
        "a value twice, by an escape": again(', "v\\u0061lue": 1.0'),
        "a verdict twice": again(', "verdict": true'),
        "an id twice": again(', "id": "other"'),
        "a repeat twice": again(', "repeat": 0, "repeat": 1'),
        "the lost lines commented out": bytes_of(B, lambda c: b"\n".join(
            b"#" + line if b'"value": 0.0' in line else line for line in c.split(b"\n"))),
        "the lost lines blank": bytes_of(B, lambda c: b"\n".join(
            b"" if b'"value": 0.0' in line else line for line in c.split(b"\n"))),
        "the lost lines one object of lists": bytes_of(B, lambda c: c.replace(b'"value": 0.0', b'"value": [0.0, 1.0]')),
    },
)  # fmt: skip


def misspelt(key: str, as_: str, where: str = B) -> Change:
    """A key of the rows goes by a name that is almost its own."""
    return each(where, lambda row: {as_ if name == key else name: value for name, value in row.items()})


KEYS = attacks(
    external,
    {
        f"{key!r} for {right!r} on {'both sides' if two else 'one side'}": (
            then(fill, both(lambda n, k=right, a=key: misspelt(k, a, n)) if two else misspelt(right, key))
        )
        for right, key, two, fill in [
            ("value", "valeu", False, lambda s: None),
            ("id", "ID", False, lambda s: None),
            ("metric", "metrics", False, lambda s: None),
            ("case_hash", "casehash", True, lambda s: None),
            ("case_hash", "case_hsh", False, lambda s: None),
            ("cluster", "clustr", True, on_both(lambda r: r | {"cluster": f"p{len(r['id'])}"})),
            ("cluster", "Cluster", True, on_both(lambda r: r | {"cluster": "p"})),
            ("repeat", "repaet", True, on_both(lambda r: r | {"repeat": 0})),
            ("status", "staus", False, everywhere(status="error")),
            ("error", "eror", False, everywhere(error="connection refused")),
            ("finish_reason", "finish_reson", False, everywhere(finish_reason="abort")),
            ("evalset", "evalste", True, on_both(lambda r: r | {"evalset": "other"})),
        ]
    },
)  # fmt: skip


def swapped(scene: Scene) -> None:
    """Each side is given the other's file."""
    scene.rows = {"a.jsonl": scene.rows[B], B: scene.rows["a.jsonl"]}


def from_the_baseline(*, named: bool) -> Change:
    """What the variant got wrong is filled from the baseline's file."""

    def change(scene: Scene) -> None:
        theirs = {row["id"]: row for row in scene.rows["a.jsonl"]}
        scene.rows[B] = [
            (dict(theirs[row["id"]]) if named else with_fields(theirs[row["id"]], model=...)) if wrong(row) else row
            for row in scene.variant
        ]

    return change


MODELS = attacks(
    losing,
    {
        "files swapped": swapped,
        "files swapped, the baseline's name listed": then(swapped, lambda s: s.gate["baseline"].update(models=["big"])),
        "lost rows filled from the baseline's file": from_the_baseline(named=True),
        "a third model": then(hidden(model="tiny")),
        "a model that is a number": everywhere(model=3),
        "a model that the list leaves out": lambda s: s.gate["variants"]["v"].update(models=["medium"]),
        "the baseline's rows of two models": each(
            "a.jsonl", lambda r: r | {"model": "tiny"}, lambda r: r["id"].endswith("1")),
        "one file for both, by a link": lambda s: s.links.update({B: "a.jsonl"}),
    },
)  # fmt: skip

timed = both(
    lambda n: each(
        n,
        lambda r: (
            r
            | {
                "e2e": 1.0 if n[0] == "a" else 0.9,
                "batch": (at := number_of(r)),
                "started": 10 * at + (n[0] == "b"),
            }
        ),
    )
)
# As it stands, this approves.
with_times = then(timed, lambda s: s.gate["gate"]["rules"].append({"metric": "latency.e2e", "max_ratio": 1.5}))
SERVING = attacks(
    sound,
    {
        **{f"{key} of {value!r:.20}": then(with_times, everywhere(**{key: value})) for key, value in [
            ("e2e", -1.0), ("e2e", float("nan")), ("e2e", float("inf")), ("e2e", "0.9"), ("e2e", True), ("e2e", 1e300),
            ("e2e", ...), ("e2e", None), ("tokens", -1), ("tokens", 1.5), ("token_ids", [True]), ("token_ids", [-1]),
            ("token_ids", [2**31]), ("token_ids", "123"), ("draft_accepted", 3), ("attempts", []),
            ("attempts", [{"outcome": "ok"}]), ("tokens_sha256", "0" * 63), ("text_sha256", "A" * 64),
            ("top2_gaps", [1.0]), ("batch", -1), ("batch", "one"), ("prompt_tokens", True)]},
        "no more kept of a draft than proposed": then(with_times, everywhere(draft_proposed=3, draft_accepted=4)),
        "a ratio of times that nobody gave": lambda s: s.gate["gate"]["rules"].append(
            {"metric": "latency.e2e", "max_ratio": 1.5}),
        "twice as slow": then(with_times, everywhere(e2e=2.5)),
        "all of one batch": then(with_times, on_both(lambda r: r | {"batch": 1})),
    },
)  # fmt: skip

GROUPS = {"bytes": BYTES, "keys": KEYS, "models": MODELS, "serving": SERVING}
