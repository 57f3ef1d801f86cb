"""A served baseline's files for the variants: its answers, and the tokens that its server lists at each place.

A sealed safetensors file at `job.artifact`, one row after the other: `lengths` int32 [rows], `tokens` and `top` int32
[all tokens], `given`, `most` and `least` float64 [all tokens], `counts` int32 [all tokens], how many each lists, and
these one after the other, `numbers` int32 and `logprobs` float64. It says for which place of which run it was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from qualgate.engine.artifact import case_of, check_place, place_of, places_of
from qualgate.errors import InfrastructureError
from qualgate.quant.sealed_tensors import read_tensors, write_tensors
from qualgate.records import FinishReason, Job
from qualgate.served.places import Place
from qualgate.stats.kl_bounds import Listed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Left:
    """One answer of the baseline's, why it ended, and each of its places as its own server reads it."""

    tokens: tuple[int, ...]
    finish: FinishReason
    places: Sequence[Place]


def leave(job: Job, left: Sequence[Left]) -> None:
    """Write `job.artifact`, in one rename; one entry a prompt, in their order."""
    path, every = Path(job.artifact), [place for one in left for place in one.places]
    path.parent.mkdir(parents=True, exist_ok=True)

    def numbers(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    def floats(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    tensors = {
        "lengths": numbers([len(one.tokens) for one in left]),
        "tokens": numbers([token for one in left for token in one.tokens]),
        "top": numbers([place.top for place in every]),
        "given": floats([place.given for place in every]),
        "most": floats([place.listed.most for place in every]),
        "least": floats([place.listed.least for place in every]),
        "counts": numbers([len(place.listed.tokens) for place in every]),
        "numbers": numbers([number for place in every for number in place.listed.tokens.tolist()]),
        "logprobs": floats([value for place in every for value in place.listed.logprobs.tolist()]),
    }
    about = {
        "place": place_of(path),
        "finish": json.dumps([one.finish for one in left]),
        "cases": json.dumps([case_of(prompt) for prompt in job.prompts]),
    }
    write_tensors(path, tensors, about)


def read_left(job: Job) -> list[Left]:
    """What was left for this job, one entry a prompt. InfrastructureError when the file is not what was written for
    this job of this run; it is deleted then, so that the next run makes it again."""
    path = Path(job.artifact)
    try:
        columns, about = read_tensors(path)
        check_place(path, about)
        every = _rows(columns, json.loads(about["finish"]))
        return [every[place] for place in places_of(job, json.loads(about["cases"]))]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        raise InfrastructureError(f"The baseline's artifact {path} cannot be read ({error}). Run again.") from error


def _rows(columns: dict[str, torch.Tensor], finish: Sequence[FinishReason]) -> list[Left]:
    counts = columns["counts"].tolist()
    listed = zip(
        columns["numbers"].long().split(counts), columns["logprobs"].split(counts),
        columns["most"].tolist(), columns["least"].tolist(), strict=True,
    )  # fmt: skip
    tops, given = columns["top"].tolist(), columns["given"].tolist()
    every = [
        Place(
            top=top,
            given=own,
            listed=Listed(tokens=numbers.numpy(), logprobs=logprobs.numpy(), most=most, least=least),
        )
        for top, own, (numbers, logprobs, most, least) in zip(tops, given, listed, strict=True)
    ]
    lengths, found, start = columns["lengths"].tolist(), [], 0
    for tokens, ended in zip(columns["tokens"].split(lengths), finish, strict=True):
        places = every[start : start + len(tokens)]
        found.append(Left(tokens=tuple(tokens.tolist()), finish=ended, places=places))
        start += len(tokens)
    return found
