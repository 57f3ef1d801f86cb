"""Row `fail_closed.score_files`: seeded mutations of two score files and of the gate file, through the command itself.

Three starts. From two files that approve, mutated bytes and rows: exit 0 only where what the rows say is still what it
was. From a variant that lost a third, a mutated gate file: exit 0 only where every critical rule now allows for it.
What counts is read here with json and yaml alone, by none of the code that is tried.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import typer
import yaml

from qualgate.errors import QualgateError
from tests.verification.goals import DECISIONS

LEAST = 300
CASES, REPEATS, LOST = 120, 2, 1 / 3
GATE = """\
version: 1
baseline: {model: ./m}
variants: {v: {model: ./n}}
evalsets: [{name: set, cases: external}]
gate:
  rules:
    - {metric: exact_match, max_drop: 0.12}
    - {metric: exact_match, max_relative_drop: 0.15}
    - {metric: exact_match, where: {tag: hard}, max_drop: 0.15}
    - {metric: json.valid, max_drop: 0.12, tier: supporting}
  quarantine:
    - {case: c7, owner: ann, expires: 2999-01-01, reason: flaky}
"""
Row = dict[str, Any]
Draw = np.random.Generator
Files = dict[str, bytes]  # "gate.yaml", "a.jsonl", "b.jsonl"


def rows(side: str, lost: float = 0.0) -> list[Row]:
    """Two answers to each case, four cases a passage, half of them hard; two answers are lost and two gained."""
    made: list[Row] = []
    for case in range(CASES):
        for repeat in range(REPEATS):
            right = case % 10 > 0
            if side == "b":
                right = (right or (case, repeat) in ((10, 0), (50, 1))) and (case, repeat) not in ((11, 0), (51, 1))
                right = right and case >= lost * CASES
            for metric in ("exact_match", "json.valid"):
                made.append({
                    "id": f"c{case}", "metric": metric, "value": float(right), "verdict": right,
                    "error_type": "" if right else "differs", "extracted": f"{side} {case}", "reason": "",
                    "case_hash": f"{case:064x}", "scorer": f"{metric}/1", "repeat": repeat,
                    "cluster": f"p{case // 2}", "tags": ["hard"] if case % 2 else [], "finish_reason": "eos",
                    "model": side,
                })  # fmt: skip
    return made


def written(found: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in found).encode()


def files(lost: float = 0.0) -> Files:
    return {"gate.yaml": GATE.encode(), "a.jsonl": written(rows("a")), "b.jsonl": written(rows("b", lost))}


def exit_of(given: Files, folder: Path) -> int | str:
    """The code of `qualgate gate` over these files, or the name of what crashed."""
    from qualgate.cli.judging import gate

    for name, content in given.items():
        (folder / name).write_bytes(content)
    gate_file, baseline, variant = (folder / name for name in ("gate.yaml", "a.jsonl", "b.jsonl"))
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            gate(gate_file, baseline_scores=baseline, variant_scores=variant, as_json=True)
        except typer.Exit as done:
            return done.exit_code
        except QualgateError as error:
            return int(error.exit)
        except Exception as error:
            return type(error).__name__
    return "no exit code"


# ---------------------------------------------------------------------------------------------- what counts


def said(name: str, content: bytes) -> Counter[str] | None:
    """What the rows of a file say that a verdict rests on, in any order; None where that cannot be read at all.

    Cut-off answers bar a verdict where they are the baseline's; the variant's are answers, scored as they stand. What
    the server ended is no answer of either.
    """
    try:
        lines = [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    except ValueError:
        return None
    if not all(isinstance(line, dict) for line in lines):
        return None
    return Counter(_meant(line, name == "a.jsonl" and line.get("finish_reason") == "length") for line in lines)


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
    return bool(allowed) and min(allowed) > LOST


# ----------------------------------------------------------------------------------------------- mutations


def _line(content: bytes, g: Draw, change: Callable[[Row], Row]) -> bytes:
    """One row, or a few, changed."""
    lines = content.splitlines(keepends=True)
    for at in g.integers(len(lines), size=int(g.choice([1, 5, 60]))):
        lines[at] = json.dumps(change(json.loads(lines[at]))).encode() + b"\n"
    return b"".join(lines)


def _with(**over: Any) -> Callable[[bytes, Draw], bytes]:
    return lambda content, g: _line(content, g, lambda row: row | over)


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
    return written(found)


ROWS: dict[str, Callable[[bytes, Draw], bytes]] = {
    "flip a value": lambda c, g: _line(c, g, lambda row: row | {"value": 1 - row["value"]}),
    "flip a verdict": lambda c, g: _line(c, g, lambda row: row | {"verdict": not row["verdict"]}),
    "no verdict": _with(verdict=None),
    "an error type": lambda c, g: _line(c, g, lambda row: row | {"error_type": "timeout", "verdict": None}),
    "a status": lambda c, g: _line(c, g, lambda row: row | {"status": str(g.choice(["error", "missing", "skipped"]))}),
    "an error": _with(error="connection refused"),
    "a fraction": _with(value=0.5),
    "beyond the range": lambda c, g: _line(c, g, lambda row: row | {"value": float(g.choice([-1, 2, 1e308]))}),
    "not a number": _with(value=float("nan")),
    "another id": lambda c, g: _line(c, g, lambda row: row | {"id": f"x{g.integers(10**9)}"}),
    "another hash": lambda c, g: _line(c, g, lambda row: row | {"case_hash": f"x{g.integers(10**9)}"}),
    "another scorer": _with(scorer="exact_match/2"),
    "another metric": _with(metric="numeric"),
    "another repeat": _with(repeat=7),
    "another cluster": lambda c, g: _line(c, g, lambda row: row | {"cluster": f"x{g.integers(10**9)}"}),
    "another evalset": _with(evalset="other"),
    "other tags": _with(tags=["easy"]),
    "cut off": lambda c, g: written([json.loads(line) | {"finish_reason": "length"} for line in c.splitlines()]),
    "ended by the server": _with(finish_reason="abort"),
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


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: how often each exit code came out, the goal's row). quick: each mutation once, which is no proof."""
    found: list[tuple[str, int | str, bool]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if (code := exit_of(files(), folder)) != 0:
            raise AssertionError(f"the files that mutations start from exit with {code}, not 0")
        for mutation, before, after in mutated(1 if quick else 8):
            found.append((mutation, exit_of(after, folder), harmless(before, after)))
    wrong = [mutation for mutation, code, fine in found if code == 0 and not fine]
    crashed = [f"{mutation}: {code}" for mutation, code, _ in found if isinstance(code, str)]
    approved = sum(code == 0 for _, code, _ in found)
    codes = Counter(str(code) for _, code, _ in found)
    id = "fail_closed.score_files"
    measured = {"tried": len(found), "approved_wrongly": wrong, "approved_unchanged": approved - len(wrong),
                "crashed": crashed}  # fmt: skip
    row = DECISIONS.row(id, measured, met=not wrong and not crashed)
    if row["met"] and len(found) < LEAST:
        row |= {"met": None, "reason": f"only {len(found)} were tried"}
    return [{"of": id, "exit": code, "count": count} for code, count in sorted(codes.items())], [row]
