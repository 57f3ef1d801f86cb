"""Scores of made-up arms: as rows, as files beside a gate file, and what `qualgate gate` says of them."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.intake.score_rows import ScoreRow, Scores, rows_of
from qualgate.records import RunEvidence

GATE_FILE = """\
version: 1
baseline: {{model: ./model}}
variants: {{{variant}: {{model: ./model}}}}
evalsets: [{sets}]
gate:
  rules:
    - {{metric: exact_match, max_drop: 0.10}}
    - {{metric: exact_match, per: evalset, max_drop: 0.15}}
    - {{metric: latency.e2e, max_ratio: 1.5, tier: supporting}}
{settings}
"""


def side(name: str, right: int, n: int = 200, **fields) -> Scores:
    given = {"case_hash": "h", "scorer": "s/1", **fields}

    def row(case: int) -> ScoreRow:
        own_hash = given["case_hash"] and f"{given['case_hash']}{case}"
        return ScoreRow(
            id=str(case), metric="exact_match", value=float(case < right), **{**given, "case_hash": own_hash}
        )

    return Scores(source=name, rows=tuple(map(row, range(n))))


def external(name: str) -> str:
    """How a gate file names a set that lies nowhere near it."""
    return f"{{name: {name}, cases: external}}"


def exported(folder: Path, evidence: RunEvidence, settings: str = "", sets: str | None = None) -> tuple[Path, ...]:
    """A gate file, and the scores of a run's two arms as rows, in a folder without any evalset."""
    names = sets if sets is not None else ", ".join(map(external, evidence.metrics))
    files = folder / "gate.yaml", folder / "a.jsonl", folder / "b.jsonl"
    files[0].write_text(GATE_FILE.format(variant="variant", sets=names, settings=settings))
    for path, arm in zip(files[1:], (evidence.baseline, *evidence.variants), strict=True):
        path.write_text("".join(json.dumps({**row, "model": arm.name}) + "\n" for row in rows_of(arm)))
    return files


def gated(files: tuple[Path, ...], *more: str):
    gate, baseline, variant = map(str, files)
    return CliRunner().invoke(
        app, ["gate", gate, "--baseline-scores", baseline, "--variant-scores", variant, "--json", *more]
    )


def code(files: tuple[Path, ...], *more: str) -> int:
    done = gated(files, *more)
    return int(getattr(done.exception, "exit", done.exit_code))
