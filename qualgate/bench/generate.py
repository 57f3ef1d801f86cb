"""Benchmark `generate`: our step loop against transformers.generate at its best batch size.

Same weights, same prompts of the shipped evalsets, same tokens; rounds are interleaved so that a busy machine slows
both alike. Ours also records log-probs and margins, which transformers.generate is not asked for. Both find their
best batch size on a fifth of the cases first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from qualgate.bench.goals import GENERATE
from qualgate.bench.shape import told
from qualgate.engine.device import choose_device
from qualgate.engine.load import LoadedArm, load_arm
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_files import read_files
from qualgate.records import ArmSpec, Case

BATCH_SIZES = (8, 16, 32, 64)
MOST_UNLIKE = 0.01  # of the cases: near ties fall either way in another batch, more would be other work
SETS = ("arithmetic", "json_extract", "tool_calls", "code", "transform", "reformat", "grounded_qa")


@dataclass(frozen=True, slots=True)
class Question:
    """A rendered prompt and how many tokens may be said."""

    token_ids: tuple[int, ...]
    max_new_tokens: int


def run(quick: bool, model: str | None = None) -> dict[str, Any]:
    """5 rounds over 280 cases (quick: 2 over 70). `model` defaults to the shipped reference model."""
    spec = ArmSpec(name="baseline", model=model or str(files("qualgate") / "refmodel" / "weights"))
    arm = load_arm(spec, ".", {}, device=choose_device("auto"))
    questions = _questions(arm, per_set=10 if quick else 40)
    sample = questions[::5]
    best = {
        name: min(BATCH_SIZES, key=lambda size: _timed(answer, arm, sample, size)[0])
        for name, answer in (("ours", _ours), ("transformers", _transformers))
    }
    rounds, different = [], 0
    for _ in told("generate", range(2 if quick else 5), lambda done: f"round {done + 1}"):
        ours, said = _timed(_ours, arm, questions, best["ours"])
        theirs, expected = _timed(_transformers, arm, questions, best["transformers"])
        tokens = sum(map(len, said))
        different = max(different, sum(one != other for one, other in zip(said, expected, strict=True)))
        rounds.append(
            {"ours_tokens_per_s": tokens / ours, "transformers_tokens_per_s": tokens / theirs, "ratio": theirs / ours}
        )
    ratios = [entry["ratio"] for entry in rounds]
    unlike = different > MOST_UNLIKE * len(questions)
    return GENERATE.result(
        rounds=[{"cases": len(questions), "batch_size": best, "cases_with_other_tokens": different}, *rounds],
        rows=[
            GENERATE.row(
                "generate_speed",
                median(ratios),
                met=median(ratios) >= 1.0 and not unlike,
                spread=[min(ratios), max(ratios)],
            )
        ],
    )


def _questions(arm: LoadedArm, per_set: int) -> list[Question]:
    """Cases of every shipped set, longest answers first, so that rows of a batch end together."""
    folder = files("qualgate_evalsets")
    cases = [
        Case(evalset=name, body=json.loads(line))
        for name in SETS
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[:per_set]
    ]
    rendered = Renderer(read_files(Path(arm.spec.model))).render(cases)
    questions = [Question(ids, case.max_new_tokens) for ids, case in zip(rendered, cases, strict=True)]
    return sorted(questions, key=lambda question: (-question.max_new_tokens, -len(question.token_ids)))


def _timed(answer: Any, arm: LoadedArm, questions: Sequence[Question], size: int) -> tuple[float, list[list[int]]]:
    """(seconds, every answer's token ids) in batches of `size`."""
    started = perf_counter()
    said = [tokens for at in range(0, len(questions), size) for tokens in answer(arm, questions[at : at + size])]
    return perf_counter() - started, said


def _ours(arm: LoadedArm, batch: Sequence[Question]) -> list[list[int]]:
    from qualgate.engine.forward import open_decoder
    from qualgate.engine.generate import generate
    from qualgate.engine.transcript import Transcript

    with open_decoder(arm.model) as decoder:
        transcript = Transcript([question.max_new_tokens for question in batch], arm.stop_ids, arm.model.device)
        generate(decoder, [question.token_ids for question in batch], transcript)
        lengths = transcript.length.tolist()
    return [tokens[:length] for tokens, length in zip(transcript.tokens.tolist(), lengths, strict=True)]


def _transformers(arm: LoadedArm, batch: Sequence[Question]) -> list[list[int]]:
    import torch

    from qualgate.engine.forward import pad

    token_ids, lengths = pad([question.token_ids for question in batch], arm.model.device)
    width = token_ids.shape[1]
    mask = torch.arange(width, device=token_ids.device) >= (width - lengths)[:, None]
    model: Any = arm.model
    said = model.generate(
        token_ids, attention_mask=mask.long(), do_sample=False, pad_token_id=0, eos_token_id=list(arm.stop_ids),
        max_new_tokens=max(question.max_new_tokens for question in batch),
    )[:, width:].tolist()  # fmt: skip
    answers = []
    for question, tokens in zip(batch, said, strict=True):
        ends = [place + 1 for place, token in enumerate(tokens) if token in arm.stop_ids]
        answers.append(tokens[: min([*ends, question.max_new_tokens])])
    return answers
