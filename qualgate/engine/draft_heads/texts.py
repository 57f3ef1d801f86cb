"""What a head learns from: its target's own answers, and what entered the target's output head at each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from qualgate.engine.answers import Answers
from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.choice import open_decoder, open_engine, threads_of_kernels
from qualgate.engine.load import LoadedArm
from qualgate.engine.request import Request
from qualgate_kernels.slots import SLOTS

AT_ONCE = 64  # requests that are answered together
BLOCKS = 128  # of a pass that reads, more where one text takes them

Progress = Callable[[int, int], None]
"""Called with what is done and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt's token ids, and how many tokens its answer may have."""

    prompt: tuple[int, ...]
    max_new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Text:
    """tokens: int64 [n], a prompt and its answer; prompt: how many are the prompt's; states: float32 [n - 1, width], of
    all but the last: what entered the output head behind each."""

    tokens: torch.Tensor
    prompt: int
    states: torch.Tensor


def answers_of(arm: LoadedArm, questions: Sequence[Question], progress: Progress) -> list[list[int]]:
    """The arm's likeliest answers, by its own engine."""
    found: list[list[int]] = []
    with open_engine(arm.model, arm.choice) as engine:
        for start in range(0, len(questions), AT_ONCE):
            some = questions[start : start + AT_ONCE]
            answers = Answers(len(some))
            engine.run([request_of(arm, one) for one in some], None, answers)
            found += answers.tokens
            progress(len(found), len(questions))
    return found


def request_of(arm: LoadedArm, question: Question) -> Request:
    """What the engine is asked."""
    return Request(prompt=question.prompt, max_new_tokens=question.max_new_tokens, stop_ids=frozenset(arm.stop_ids))


@dataclass(frozen=True, slots=True)
class _Blocks:
    blocks: range


@dataclass(frozen=True, slots=True)
class _Rows:
    """See `batch.Rows`."""

    stream: _Blocks
    first: int
    tokens: list[int]
    wants: int


def read_texts(arm: LoadedArm, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Text]:
    """Read each prompt with its answer, once: the states are those that decoding computed, to the bit."""
    longest = max((len(prompt) + len(answer) for prompt, answer in texts), default=0)
    count, states, read = max(BLOCKS, -(-longest // SLOTS)), KeysValues(), list[torch.Tensor]()
    with threads_of_kernels() as threads, open_decoder(arm.model, arm.choice) as (decoder, _):
        for group in _groups(texts, count):
            parts, first = list[_Rows](), 0
            for prompt, answer in group:
                tokens = [*prompt, *answer][:-1]
                last = first - (-len(tokens) // SLOTS)
                parts.append(_Rows(_Blocks(range(first, last)), 0, tokens, len(tokens)))
                first = last
            passed = decoder.forward(batch(parts, count), states, threads)
            read += passed.split([part.wants for part in parts])
    return [  # copied out of inference mode: one learns from them
        Text(tokens=torch.tensor([*prompt, *answer]), prompt=len(prompt), states=piece.clone())
        for (prompt, answer), piece in zip(texts, read, strict=True)
    ]


def _groups(
    texts: Sequence[tuple[Sequence[int], Sequence[int]]], blocks: int
) -> Iterator[list[tuple[Sequence[int], Sequence[int]]]]:
    """Neighbours that fit into so many blocks together."""
    group, taken = list[tuple[Sequence[int], Sequence[int]]](), 0
    for text in texts:
        needed = -(-(len(text[0]) + len(text[1])) // SLOTS)
        if group and taken + needed > blocks:
            yield group
            group, taken = [], 0
        group.append(text)
        taken += needed
    if group:
        yield group
