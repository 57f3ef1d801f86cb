"""Read the results file that lm-eval writes beside its samples: the model, and what both sides must have alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.intake.harnesses.containers import read_json
from qualgate.intake.harnesses.fields import mapping
from qualgate.records.identity import content_hash

_DATE = re.compile(r"\d{4}-\d\d-\d\dT[\d.:-]+$")
OF_TASK = ("output_type", "num_fewshot", "repeats", "generation_kwargs", "filter_list", "description", "doc_to_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a results file says about one task."""

    model: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    samples: int | None = None  # documents that lm-eval evaluated


def results_beside(samples: Path, task: str) -> Results:
    """Read the results file of the same run as a samples file; an empty one if there is none."""
    date = _DATE.search(samples.stem)
    path = samples.with_name(f"results_{date[0]}.json") if date else None
    if path is None or not path.is_file():
        return Results()
    body = read_json(path)
    if not isinstance(body, dict):
        return Results()
    config, of_task = mapping(body.get("config")), mapping(mapping(body.get("configs")).get(task))
    settings = {
        "the task's version": str(mapping(body.get("versions")).get(task, "")),
        "few-shots": str(mapping(body.get("n-shot")).get(task, "")),
        "the chat template": str(body.get("chat_template_sha") or "none")[:12],
        "the system instruction": str(body.get("system_instruction_sha") or "none")[:12],
        "few-shots as turns": str(bool(body.get("fewshot_as_multiturn"))),
        "generation settings given to lm-eval": str(config.get("gen_kwargs") or "none"),
    }
    settings |= {f"the task's {key}": _short(of_task[key]) for key in OF_TASK if key in of_task}
    counted = mapping(mapping(body.get("n-samples")).get(task)).get("effective")
    return Results(
        model=str(body.get("model_name") or mapping(config.get("model_args")).get("pretrained") or ""),
        settings=settings,
        samples=counted if type(counted) is int else None,
    )


def _short(value: Any) -> str:
    """A value for a line; a long one by its hash."""
    text = str(value)
    return text if len(text) <= 60 else content_hash(text)[:12]
