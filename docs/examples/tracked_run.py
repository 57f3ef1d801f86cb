"""Log each verdict of a run to MLflow, or to Weights & Biases as a run to `wandb sync`.

    pip install mlflow            # or wandb
    qualgate report gate.yaml --json > report.json
    python tracked_run.py mlflow report.json
    python tracked_run.py wandb report.json

A run for each variant: tags with its word, exit code and first reason, a metric for each number of each rule, and the
report. A report that was logged before is logged once more: the tag `qualgate.run` says which belong together.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

NUMBERS = ("baseline", "variant", "difference", "lower", "upper", "n", "lost", "gained")


def tags(report: dict, verdict: dict) -> dict[str, str]:
    """What the gate says of a variant. It alone decides; metrics are for plots."""
    named = {"run": report["run"], "variant": verdict["variant"], "verdict": verdict["word"], "exit": verdict["exit"]}
    return {f"qualgate.{name}": str(value) for name, value in named.items()} | {
        "qualgate.reason": verdict["reasons"][0][:1_000]
    }


def metrics(verdict: dict) -> dict[str, float]:
    """The numbers of its rules, as `json.valid_pooled_max_drop_0.02/pooled/lower`."""
    return {
        re.sub(r"[^\w./-]+", "_", f"{compared['rule']}/{compared['slice']}/{name}"): float(compared[name])
        for compared in verdict["comparisons"]
        for name in NUMBERS
        if compared.get(name) is not None
    }


def to_mlflow(report: dict, path: Path) -> None:
    """Log to MLFLOW_TRACKING_URI, into the experiment `qualgate`."""
    import mlflow

    mlflow.set_experiment("qualgate")
    for verdict in report["verdicts"]:
        with mlflow.start_run(run_name=f"{verdict['variant']}: {verdict['word']}", tags=tags(report, verdict)):
            mlflow.log_metrics(metrics(verdict))
            mlflow.log_artifact(str(path))


def to_wandb(report: dict, path: Path) -> None:
    """Write runs to `wandb/`, without a network."""
    import wandb

    for verdict in report["verdicts"]:
        with wandb.init(
            project="qualgate",
            mode="offline",
            name=f"{verdict['variant']}: {verdict['word']}",
            group=report["run"],
            config=tags(report, verdict),
        ) as run:
            run.summary.update(metrics(verdict))
            run.save(str(path.absolute()), base_path=str(path.absolute().parent), policy="now")


TRACKERS = {"mlflow": to_mlflow, "wandb": to_wandb}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in TRACKERS:
        sys.exit("usage: python tracked_run.py mlflow|wandb report.json")
    text = Path(sys.argv[2]).read_text(encoding="utf-8")
    if not text.strip():
        sys.exit(f"{sys.argv[2]} is empty: `qualgate report` said on stderr why there is no report")
    TRACKERS[sys.argv[1]](json.loads(text), Path(sys.argv[2]))
