"""Scores of made-up arms: as rows, as files beside a gate file, and what `qualgate gate` says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.evalsets import load
from qualgate.intake.score_rows import ScoreRow, Scores
from qualgate.records import ArmEvidence, RunEvidence

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


def rows_of(arm: ArmEvidence) -> Iterator[dict[str, Any]]:
    """The score rows of one arm in the order of its units, as `read_score_rows` reads them. Times are rows, too."""
    for unit in arm.units:
        assert unit.status == "done", unit.key
        for metric, value in sorted(unit.values.items()):
            if value is None and metric not in unit.scorers:
                continue  # a time that was not taken
            row = {"evalset": unit.key.evalset, "id": unit.key.case_id, "repeat": unit.key.repeat, "metric": metric}
            row |= {"value": value, "case_hash": unit.case_hash, "scorer": unit.scorers.get(metric, "")}
            row |= {"error_type": unit.unsaid[metric]} if metric in unit.unsaid else {}
            row |= {"unanswered": unit.unanswered} if unit.unanswered else {}
            row |= {"cluster": unit.cluster} if unit.cluster is not None else {}
            row |= {"batch": unit.job} if unit.job is not None else {}
            drafts = {"draft_proposed": unit.draft_proposed, "draft_accepted": unit.draft_accepted}
            row |= {name: count for name, count in drafts.items() if count is not None}
            row |= {"started": unit.began} if unit.began is not None else {}
            ended = unit.finish_reason or ("length" if unit.truncated else "")
            yield row | ({"finish_reason": ended} if ended else {})


def gated(files: tuple[Path, ...], *more: str, json: bool = True):
    gate, baseline, variant = map(str, files)
    words = ["gate", gate, "--baseline-scores", baseline, "--variant-scores", variant, *more]
    return CliRunner().invoke(app, words + ["--json"] * json)


def code(files: tuple[Path, ...], *more: str) -> int:
    done = gated(files, *more)
    return int(getattr(done.exception, "exit", done.exit_code))


def said(files: tuple[Path, ...], *more: str) -> tuple[int, str]:
    """(exit code, everything that is said)."""
    done = gated(files, *more)
    return int(getattr(done.exception, "exit", done.exit_code)), f"{done.output}{done.exception or ''}"


def gate_file(
    folder: Path, sets: str, rule: str = "max_drop: 0.1", *, gate: str = "", head: str = "",
    baseline: str = "model: ./m", variants: str = "v: {model: ./m}",
) -> Path:  # fmt: skip
    """With one rule on exact_match. gate: further settings under `gate`; head: further sections."""
    path = folder / "gate.yaml"
    path.write_text(
        f"version: 1\nbaseline: {{{baseline}}}\nvariants: {{{variants}}}\n{head}\nevalsets: [{sets}]\n"
        f"gate: {{{gate}rules: [{{metric: exact_match, {rule}}}]}}\n"
    )
    return path


def written(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """A file of score rows: each is a right answer by the file's own model but for what it says otherwise."""
    usual = {"metric": "exact_match", "value": 1, "scorer": "s", "model": path.stem}
    path.write_text("".join(json.dumps(usual | row) + "\n" for row in rows))
    return path


def lay(folder: Path, name: str, bodies: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The evalset in the folder; the hashes of its cases by id."""
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in bodies))
    (folder / f"{name}.yaml").write_text(f"name: {name}\nversion: '1'\nmetrics: [exact_match]\n")
    return {case.id: case.hash for case in load(f"./{name}.yaml", folder).cases}


def body(id: str, question: str, **more: object) -> dict[str, object]:
    """A case of an evalset."""
    return {"id": id, "task": "t", "prompt": question, "max_new_tokens": 4, "answer": "yes", **more}
