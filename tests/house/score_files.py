"""Seeded pairs (and fours) of score files with gate files beside them, sound ones and ones with a fault."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
RULES = (
    "{metric: exact_match, max_drop: 0.05}",
    "{metric: exact_match, per: evalset, max_drop: 0.1}",
    "{metric: exact_match, max_relative_drop: 0.15}",
    "{metric: exact_match, where: {tag: hard}, max_drop: 0.15}",
    "{metric: json.valid, max_drop: 0.05}",
    "{metric: json.valid, max_drop: 0.02, tier: supporting}",
    "{metric: latency.e2e, max_ratio: 1.2}",
    "{metric: latency.e2e, percentile: 50, max_ratio: 1.3, tier: advisory}",
    "{metric: f1, max_drop: 0.1}",
)
ARMS = ("int4", "drafted", "int4+drafted")


def write_gates(folder: Path, count: int) -> Iterator[list[str]]:
    """The arguments of `gate` for each of so many: files named by number are written into the folder."""
    for number in range(count):
        yield _write(folder, number, random.Random(number))


def _write(folder: Path, number: int, rng: random.Random) -> list[str]:
    four = number % 10 == 9
    cases = rng.choice((12, 40, 120, 400))
    arms = ARMS if four else ("variant",)
    rules = rng.sample(RULES[:3], 1) + rng.sample(RULES[3:], rng.choice((0, 1, 2)))
    gate = folder / f"{number:03}.yaml"
    named = "four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}\n" if four else ""
    more = rng.choice(("", ", alpha: 0.01", ", review: always", ", identity: ids"))
    gate.write_text(
        f"version: 1\nbaseline: {{model: ./m}}\nvariants: {{{', '.join(f'{arm}: {{model: ./n}}' for arm in arms)}}}\n"
        f"evalsets: [./made.yaml]\n{named}gate: {{rules: [{', '.join(rules)}]{more}, expected: {number:03}.ids}}\n"
    )
    (folder / f"{number:03}.ids").write_text("".join(json.dumps({"id": f"c{case}"}) + "\n" for case in range(cases)))
    files = {arm: folder / f"{number:03}.{place}.jsonl" for place, arm in enumerate(("baseline", *arms))}
    loss = rng.choice((0.0, 0.0, 0.02, 0.1, 0.3))
    for arm, path in files.items():
        rows = _rows(random.Random(number), cases, rng, 0.0 if arm == "baseline" else loss, drafts="drafted" in arm)
        if arm != "baseline" and number % 3 == 2:
            rng.choice(FAULTS)(rows, rng)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [gate.name, "--baseline-scores", files["baseline"].name]
    if four:
        return [*arguments, *(part for arm in arms for part in ("--arm", f"{arm}={files[arm].name}"))]
    return [*arguments, "--variant-scores", files["variant"].name, *(["--peers"] if number % 20 == 0 else [])]


def _rows(cases: random.Random, count: int, rng: random.Random, loss: float, *, drafts: bool = False) -> list[Row]:
    """cases: draws the same of every arm. drafts: the arm speculates."""
    rows: list[Row] = []
    hashed, clustered = cases.random() < 0.7, cases.random() < 0.3
    model = str(rng.random())
    for case in range(count):
        right, hard = cases.random() < 0.8, cases.random() < 0.4
        kept = rng.random() >= loss if right else rng.random() < 0.02
        row: Row = {"id": f"c{case}", "tags": ["hard"] if hard else [], "scorer": "ours/1", "model": model}
        row |= {"case_hash": f"{case:064x}"} if hashed else {}
        row |= {"cluster": f"k{case // 4}"} if clustered else {}
        serving = {"ttft": 0.1, "e2e": 1 + cases.random() + rng.random() / 10, "tokens": 20, "batch": case // 4}
        serving |= {"draft_proposed": 30, "draft_accepted": 12} if drafts else {}
        serving |= {"started": case // 4}
        rows.append({**row, "metric": "exact_match", "value": float(kept), **serving})
        rows.append({**row, "metric": "json.valid", "value": kept, "verdict": kept})
        rows.append({**row, "metric": "f1", "value": round(rng.random() if not kept else 1.0, 3)})
    return rows


def _lost(rows: list[Row], rng: random.Random) -> None:
    del rows[rng.randrange(len(rows))]


def _twice(rows: list[Row], rng: random.Random) -> None:
    rows.append(rng.choice(rows))


def _with(**fields: Any) -> Callable[[list[Row], random.Random], None]:
    def fault(rows: list[Row], rng: random.Random) -> None:
        rng.choice(rows).update(fields)

    return fault


FAULTS: tuple[Callable[[list[Row], random.Random], None], ...] = (
    _lost,
    _twice,
    _with(value=None),
    _with(value="yes"),
    _with(value=float("nan")),
    _with(value=0.5),
    _with(case_hash="0"),
    _with(status="failed"),
    _with(finish_reason="abort"),
    _with(finish_reason="melted"),
    _with(verdict=None),
    _with(scorer="ours/2"),
    _with(id=""),
    _with(repeat=-1),
    _with(token_ids=[-1]),
)
