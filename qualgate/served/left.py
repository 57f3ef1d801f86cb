"""Files of a served baseline for its variants: its answers, and the tokens that its server lists at each place.

A sealed safetensors file at `job.artifact`, one row after the other: `lengths` int32 [rows], `tokens` and `top` int32
[all tokens], `given`, `most` and `least` float64 [all tokens], `counts` int32 [all tokens], how many each lists, and
these one after the other, `numbers` int32 and `logprobs` float64. It records the place of which run it is for.
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
    """One answer of the baseline's: its tokens, finish reason, and each place as its own server reads it."""

    tokens: tuple[int, ...]
    finish: FinishReason
    places: Sequence[Place]


def leave(job: Job, answers: Sequence[Left]) -> None:
    """Write `job.artifact` atomically; one answer per prompt, in their order."""
    path, places = Path(job.artifact), [place for answer in answers for place in answer.places]
    path.parent.mkdir(parents=True, exist_ok=True)

    def numbers(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    def floats(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    tensors = {
        "lengths": numbers([len(answer.tokens) for answer in answers]),
        "tokens": numbers([token for answer in answers for token in answer.tokens]),
        "top": numbers([place.top for place in places]),
        "given": floats([place.given for place in places]),
        "most": floats([place.listed.most for place in places]),
        "least": floats([place.listed.least for place in places]),
        "counts": numbers([len(place.listed.tokens) for place in places]),
        "numbers": numbers([number for place in places for number in place.listed.tokens.tolist()]),
        "logprobs": floats([value for place in places for value in place.listed.logprobs.tolist()]),
    }
    about = {
        "place": place_of(path),
        "finish": json.dumps([answer.finish for answer in answers]),
        "cases": json.dumps([case_of(prompt) for prompt in job.prompts]),
    }
    write_tensors(path, tensors, about)


def read_left(job: Job) -> list[Left]:
    """Read the baseline's answers for this job, one per prompt. InfrastructureError if the file is not the one written
    for this job of this run; it is then deleted, so that the next run makes it again."""
    path = Path(job.artifact)
    try:
        columns, about = read_tensors(path)
        check_place(path, about)
        answers = _rows(columns, json.loads(about["finish"]))
        return [answers[index] for index in places_of(job, json.loads(about["cases"]))]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        raise InfrastructureError(f"The baseline's artifact {path} cannot be read ({error}). Run again.") from error


def _rows(columns: dict[str, torch.Tensor], finish: Sequence[FinishReason]) -> list[Left]:
    """Return the answers of an artifact's columns, which hold all answers end to end. finish: why each ended."""
    list_lengths = columns["counts"].tolist()
    listed = zip(
        columns["numbers"].long().split(list_lengths), columns["logprobs"].split(list_lengths),
        columns["most"].tolist(), columns["least"].tolist(), strict=True,
    )  # fmt: skip
    tops, logprobs_given = columns["top"].tolist(), columns["given"].tolist()
    all_places = [
        Place(
            top=top,
            given=given,
            listed=Listed(tokens=numbers.numpy(), logprobs=logprobs.numpy(), most=most, least=least),
        )
        for top, given, (numbers, logprobs, most, least) in zip(tops, logprobs_given, listed, strict=True)
    ]
    lengths, answers, start = columns["lengths"].tolist(), [], 0
    for tokens, finish_reason in zip(columns["tokens"].split(lengths), finish, strict=True):
        places = all_places[start : start + len(tokens)]
        answers.append(Left(tokens=tuple(tokens.tolist()), finish=finish_reason, places=places))
        start += len(tokens)
    return answers
