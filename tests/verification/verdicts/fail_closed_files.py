"""Row `fail_closed.score_files`: seeded mutations of two score files and of the gate file, through the command itself.

Two starts. From two files that approve, mutated bytes and rows: exit 0 only where what the rows say is still what it
was. From a variant that lost a third, a mutated gate file: exit 0 only where every critical rule now allows for it.
What counts is read here with json and yaml alone, by none of the code that is tried.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.verification.verdicts.attacks.scene import CASES, LOST, Row, asked_of, external, lines
from tests.verification.verdicts.attempts import REFUSALS, Attempt, Code, outcomes, row_of

ID, LEAST = "fail_closed.score_files", 300
RULES = """\
gate:
  rules:
    - {metric: exact_match, max_drop: 0.12}
    - {metric: exact_match, max_relative_drop: 0.15}
    - {metric: exact_match, where: {tag: hard}, max_drop: 0.15}
    - {metric: json.valid, max_drop: 0.12, tier: supporting}
  quarantine:
    - {case: é-c7, owner: ann, expires: 2999-01-01, reason: flaky}
"""
Draw = np.random.Generator
Files = dict[str, bytes]  # "gate.yaml", "a.jsonl", "b.jsonl"


@lru_cache(maxsize=2)
def files(lost: int = 0) -> Files:
    """Two answers to each case, each scored twice; two cases a passage, half of them hard."""
    scene = external(lost)
    del scene.gate["gate"]
    gate = scene.content("gate.yaml") + RULES.encode()
    return {"gate.yaml": gate} | {name: lines(_scored_twice(rows)) for name, rows in scene.rows.items()}


def _scored_twice(rows: list[Row]) -> list[Row]:
    return [
        row | {"metric": metric, "scorer": f"{metric}/1", "repeat": repeat, "cluster": f"p{at // 2}", "reason": ""}
        for at, row in enumerate(rows)
        for repeat in (0, 1)
        for metric in ("exact_match", "json.valid")
    ]


def exit_of(given: Files, folder: Path) -> Code:
    """The code of `qualgate gate` over these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in given.items():
        (folder / name).write_bytes(content)
    return asked_of(folder)


# ---------------------------------------------------------------------------------------------- what counts


@lru_cache
def said(name: str, content: bytes) -> Counter[str] | None:
    """What the rows of a file say that a verdict rests on, in any order; None where that cannot be read at all.

    Cut-off answers bar a verdict where they are the baseline's; the variant's are answers, scored as they stand. What
    the server ended is no answer of either.
    """
    try:
        rows = [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    except ValueError:
        return None
    if not all(isinstance(row, dict) for row in rows):
        return None
    return Counter(_meant(row, name == "a.jsonl" and row.get("finish_reason") == "length") for row in rows)


def _meant(row: Row, cut: bool) -> str:
    """One row, with what may be left out filled in: a row's verdict follows from its value."""
    keys = ("id", "metric", "value", "case_hash", "scorer", "repeat", "cluster", "tags", "evalset", "error")
    kept = {key: row.get(key) for key in keys}
    kept["verdict"] = row["verdict"] if "verdict" in row else bool(row.get("value"))
    kept["why"] = row.get("error_type") if kept["verdict"] is not False else None
    kept["status"] = row.get("status") or "done"
    kept["cut"] = cut
    kept["ended"] = row.get("finish_reason") in ("abort", "content_filter")
    filled = {**kept, "why": kept["why"] or "", "repeat": row.get("repeat", 0), "tags": sorted(row.get("tags") or [])}
    return json.dumps(filled, sort_keys=True)


def harmless(before: Files, after: Files) -> bool:
    """Whether a mutation may leave an approval: the rows say what they said, or the rules now allow what is lost."""
    if before["gate.yaml"] == after["gate.yaml"]:
        return all(said(name, before[name]) == said(name, after[name]) for name in ("a.jsonl", "b.jsonl"))
    try:
        rules = yaml.safe_load(after["gate.yaml"])["gate"]["rules"]
        critical = [rule for rule in rules if rule.get("tier", "critical") == "critical"]
        allowed = [float(rule.get("max_drop", rule.get("max_relative_drop"))) for rule in critical]
    except (yaml.YAMLError, TypeError, KeyError, ValueError, AttributeError):
        return False
    return bool(allowed) and min(allowed) > LOST / CASES


# ----------------------------------------------------------------------------------------------- mutations


def _line(content: bytes, g: Draw, change: Callable[[Row], Row]) -> bytes:
    """One row, or a few, changed."""
    lines = content.splitlines(keepends=True)
    for at in g.integers(len(lines), size=int(g.choice([1, 5, 60]))):
        lines[at] = json.dumps(change(json.loads(lines[at]))).encode() + b"\n"
    return b"".join(lines)


def _field(content: bytes, g: Draw, change: Callable[[Row, str], Row]) -> bytes:
    keys = [*json.loads(content.splitlines()[0])]
    key = keys[int(g.integers(len(keys)))]
    return _line(content, g, lambda row: change(row, key))


def _byte(content: bytes, g: Draw) -> bytes:
    at = int(g.integers(len(content)))
    return content[:at] + bytes([int(g.integers(256))]) + content[at + 1 :]


def _lines(content: bytes, g: Draw, change: Callable[[list[bytes], int, int], list[bytes]]) -> bytes:
    lines = content.splitlines(keepends=True)
    a, b = (int(at) for at in g.integers(len(lines), size=2))
    return b"".join(change(lines, a, b))


def _exchange(content: bytes, g: Draw) -> bytes:
    """Two rows' values under each other's ids, where they differ."""
    found = [json.loads(line) for line in content.splitlines()]
    right = [row for row in found if row["value"] == 1]
    wrong = [row for row in found if row["value"] == 0]
    one, other = right[int(g.integers(len(right)))], wrong[int(g.integers(len(wrong)))]
    one["case_hash"], other["case_hash"] = other["case_hash"], one["case_hash"]
    return lines(found)


OTHERS: dict[str, tuple[Any, ...]] = {
    "verdict": (None,), "error": ("connection refused",), "value": (0.5, float("nan"), -1, 2, 1e308),
    "status": ("error", "missing", "skipped"), "id": ("another",), "case_hash": ("another",), "repeat": (7,),
    "scorer": ("exact_match/2",), "metric": ("numeric",), "cluster": ("another",), "evalset": ("other",),
    "tags": (["easy"],), "finish_reason": ("abort",),
}  # fmt: skip
ROWS: dict[str, Callable[[bytes, Draw], bytes]] = {
    **{
        f"{key} of {value!r}": lambda c, g, key=key, value=value: _line(c, g, lambda row: row | {key: value})
        for key, values in OTHERS.items()
        for value in values
    },
    "flip a value": lambda c, g: _line(c, g, lambda row: row | {"value": 1 - row["value"]}),
    "flip a verdict": lambda c, g: _line(c, g, lambda row: row | {"verdict": not row["verdict"]}),
    "an error type": lambda c, g: _line(c, g, lambda row: row | {"error_type": "timeout", "verdict": None}),
    "cut off": lambda c, g: lines([json.loads(line) | {"finish_reason": "length"} for line in c.splitlines()]),
    "a null": lambda c, g: _field(c, g, lambda row, key: row | {key: None}),
    "a field less": lambda c, g: _field(c, g, lambda row, key: {k: v for k, v in row.items() if k != key}),
    "a list for a field": lambda c, g: _field(c, g, lambda row, key: row | {key: [row[key]]}),
    "a row less": lambda c, g: _lines(c, g, lambda lines, a, b: lines[:a] + lines[a + 1 :]),
    "many rows less": lambda c, g: _lines(c, g, lambda lines, a, b: lines[: min(a, b)] + lines[max(a, b) + 1 :]),
    "a row twice": lambda c, g: _lines(c, g, lambda lines, a, b: [*lines, lines[a]]),
    "a row in place of another": lambda c, g: _lines(c, g, lambda lines, a, b: [*lines[:a], lines[b], *lines[a + 1 :]]),
    "rows in another order": lambda c, g: _lines(c, g, lambda lines, a, b: lines[a:] + lines[:a]),
    "hashes exchanged": _exchange,
    "a byte": _byte,
    "some bytes": lambda c, g: _byte(_byte(_byte(c, g), g), g),
    "cut": lambda c, g: c[: int(g.integers(len(c)))],
    "a blank line": lambda c, g: _lines(c, g, lambda lines, a, b: [*lines[:a], b"\n", *lines[a:]]),
    "a mark before": lambda c, g: b"\xef\xbb\xbf" + c,
}
POLICY: dict[str, Callable[[bytes, Draw], bytes]] = {
    "a byte": _byte,
    "some bytes": lambda c, g: _byte(_byte(c, g), g),
    "cut": lambda c, g: c[: int(g.integers(len(c)))],
    "a line less": lambda c, g: _lines(c, g, lambda lines, a, b: lines[:a] + lines[a + 1 :]),
    "a line twice": lambda c, g: _lines(c, g, lambda lines, a, b: [*lines[: a + 1], *lines[a:]]),
    "lines exchanged": lambda c, g: _lines(
        c, g, lambda lines, a, b: [lines[b] if i == a else lines[a] if i == b else x for i, x in enumerate(lines)]
    ),
    "another margin": lambda c, g: c.replace(b"0.12", g.choice([b"0.9", b"-1", b"0", b".nan", b"1e3", b"yes"]), 2),
    "another tier": lambda c, g: c.replace(b"}\n", b", tier: advisory}\n"),
}


def mutated(each: int, seed: int = 2026) -> Iterator[tuple[str, Files, Files]]:
    """(name, files before, files after): every mutation of either score file and of the gate file, so often each."""
    g, good, bad = np.random.default_rng(seed), files(), files(LOST)
    for _ in range(each):
        for name, change in ROWS.items():
            at = "a.jsonl" if g.random() < 0.3 else "b.jsonl"
            yield f"{name}, {at}", good, good | {at: change(good[at], g)}
        for name, change in POLICY.items():
            yield f"{name}, gate.yaml", bad, bad | {"gate.yaml": change(bad["gate.yaml"], g)}
        yield "the baseline's file twice", good, good | {"b.jsonl": good["a.jsonl"]}
        yield "the variant's file twice", good, good | {"a.jsonl": good["b.jsonl"]}
        yield "files exchanged", bad, bad | {"a.jsonl": bad["gate.yaml"], "gate.yaml": bad["a.jsonl"]}


def attempts(each: int) -> list[Attempt]:
    return [
        Attempt(
            group=ID,
            name=name,
            ask=lambda folder, after=after: exit_of(after, folder),
            right=REFUSALS | {0} if harmless(before, after) else REFUSALS,
        )
        for name, before, after in mutated(each)
    ]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: how often each exit code came out, the goal's row). quick: each mutation once, which is no proof."""
    rounds, row = row_of(ID, outcomes(attempts(1 if quick else 8)), LEAST)
    return rounds, [row]
