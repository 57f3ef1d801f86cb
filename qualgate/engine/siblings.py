"""Other variants' answers to a job's cases, as drafts for later variants.

A variant leaves its token ids beside the baseline's artifact, as `job-3.safetensors.NAME`. They decide nothing, because
the model verifies every draft: a missing, damaged or foreign file is silently ignored.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import torch

from qualgate.quant.sealed_tensors import read_tensors, write_tensors
from qualgate.records import Job
from qualgate.records.identity import sha256_text

Answers = tuple[tuple[int, ...], ...]


def leave_answers(job: Job, answers: list[list[int]]) -> None:
    """Write the arm's answer to each of the job's prompts, if the disk allows it."""
    tensors = {
        "lengths": torch.tensor([len(answer) for answer in answers], dtype=torch.int32),
        "tokens": torch.tensor([token for answer in answers for token in answer], dtype=torch.int32),
    }
    with suppress(OSError):
        write_tensors(_path(job), tensors, {"cases": _cases(job)})


def sibling_answers(job: Job) -> tuple[Answers, ...]:
    """Return the answers of each variant that left some, in the order of the job's prompts."""
    answers = []
    for path in sorted(Path(job.artifact).parent.glob(f"{Path(job.artifact).name}.*")):
        if path == _path(job):
            continue
        with suppress(OSError, ValueError, KeyError, TypeError):
            tensors, about = read_tensors(path)
            lengths, tokens = tensors["lengths"].tolist(), tensors["tokens"].tolist()
            if about["cases"] == _cases(job) and len(lengths) == len(job.prompts) and sum(lengths) == len(tokens):
                parts = torch.tensor(tokens).split(lengths)
                answers.append(tuple(tuple(part.tolist()) for part in parts))
    return tuple(answers)


def _path(job: Job) -> Path:
    return Path(f"{job.artifact}.{sha256_text(job.arm.name)[:16]}")


def _cases(job: Job) -> str:
    return json.dumps([[p.key.evalset, p.key.case_id, p.key.repeat, p.case_hash] for p in job.prompts])
