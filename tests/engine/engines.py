"""Engines on the reference model and on tiny ones, opened as tests want them, and what they told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.blocks import BlockPool
from qualgate.engine.decoder import open_model
from qualgate.engine.dense import lay_out
from qualgate.engine.head import OutputHead
from qualgate.engine.packed import PackedEngine
from qualgate.engine.padded.engine import open_padded
from qualgate.engine.plain_decoder import FastDecoder
from qualgate.engine.prompts import Renderer
from qualgate.engine.request import Ended, Engine, Event, Read, Reason, Request, Spoken
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import Limits, Schedule
from qualgate.engine.speculation.steps import Drafts, Step
from qualgate.quant.model_files import read_files
from qualgate.records import Case
from qualgate.refmodel import PATH
from qualgate_kernels.slots import SLOTS

Kind = Literal["plain", "packed", "padded"]
PACKED: tuple[Kind, ...] = ("plain", "packed")  # through C, and through the model's own modules
KINDS: tuple[Kind, ...] = (*PACKED, "padded")
ROOM = 4096  # blocks: more than any test needs
END = 2  # of the reference model
SETS = ("arithmetic", "json_extract", "tool_calls", "transform", "reformat", "grounded_qa")
MOST = 18  # tokens of an answer: some end before


def load(folder: Path) -> Any:
    """The model of a folder, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)


def laid_out(model: Any) -> Any:
    """The same model, with the linear layers that packed passes want."""
    assert lay_out(model) == ""
    return model


@cache
def reference(kind: Kind) -> Any:
    """The reference model as this engine takes it, which is transformers' own for a padded one."""
    if kind == "padded":
        return load(PATH)
    return laid_out(load(PATH)) if kind == "plain" else reference("plain")


@cache
def questions() -> list[tuple[int, ...]]:
    """A question of every set, of 21 to 89 tokens; the first again, so that two answer alike."""
    lines = [(name, (files("qualgate_evalsets") / f"{name}.jsonl").read_text(encoding="utf-8")) for name in SETS]
    cases = [Case(evalset=name, body=json.loads(text.splitlines()[0])) for name, text in lines]
    rendered = Renderer(read_files(PATH)).render(cases)
    return [*map(tuple, rendered), tuple(rendered[0])]


def generated(model: Any, prompt: Sequence[int], most: int, ends: Sequence[int] = (END,)) -> list[int]:
    """What transformers.generate answers."""
    ids = torch.tensor([prompt])
    said = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=most, eos_token_id=list(ends),
        pad_token_id=0,
    )  # fmt: skip
    return said[0, len(prompt) :].tolist()


@cache
def right_answers() -> list[list[int]]:
    """What transformers.generate answers to the questions."""
    answers = [generated(reference("padded"), prompt, MOST) for prompt in questions()]
    assert {answer[-1] == END for answer in answers} == {True, False}
    return answers


def asked(prompts: Sequence[tuple[int, ...]], **how: Any) -> list[Request]:
    """A request each, as many tokens as are right."""
    return [
        Request(prompt=prompt, **{"max_new_tokens": MOST, "stop_ids": frozenset({END}), **how}) for prompt in prompts
    ]


def other(token: int) -> int:
    """Not this one, nor one that ends."""
    return 3 + (token + 1) % 700


def drafts_of(answer: list[int]) -> dict[str, tuple[list[int], int]]:
    """Answers that may be offered to who answers so, and how many of their tokens are said."""
    wrong = [*answer]
    wrong[5] = other(wrong[5])
    ends = answer[-1] == END
    return {
        "whole": (answer, len(answer)),
        "with a wrong token": (wrong, 5),
        "wrong at once": ([other(answer[0]), *answer], 0),
        "wrong at the end": ([*answer[:-1], other(answer[-1])], len(answer) - 1),
        "shorter": (answer[:9], 9),
        "one token": (answer[:1], 1),
        "longer": ([*answer, 5, 6, 7, END], len(answer) if ends else MOST),
    }


@contextmanager
def opened(
    kind: Kind, model: Any, *, limits: Limits | None = None, blocks: int = ROOM, threads: int = 1
) -> Iterator[Engine]:
    """An engine, for the length of the block. model: laid out for a packed one; blocks: what its room holds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if kind == "padded":
            with open_padded(model) as engine:
                yield engine
            return
        head = OutputHead(model)
        with open_model(model, head) as decoder:
            states = KeysValues()  # one token shows how each layer attends
            schedule = Schedule([Request(prompt=(1,), max_new_tokens=1)], BlockPool(1), Limits())
            decoder.forward(batch(schedule.next(), 1), states, 1)
            yield PackedEngine(
                FastDecoder(model, states.seen) if kind == "plain" else decoder,
                head,
                KeysValues(),
                room=blocks * SLOTS,
                position_bytes=1,
                threads=threads,
                limits=limits or Limits(),
            )
    finally:
        torch.set_num_threads(before)


@dataclass(eq=False)
class Told:
    """What one run told, checked as it came: in order, and of no request anything behind its end."""

    tokens: list[list[int]]
    logprobs: list[list[float]]
    margins: list[list[float]]
    reads: list[list[tuple[int, int, float]]]  # of each place of an answer: the token there, the one said, its log-prob
    given: list[list[float]]  # the log-prob of the answer's own token there, from the logits
    ended: dict[int, Ended] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def nothing(cls, requests: int) -> Told:
        return cls(*([[] for _ in range(requests)] for _ in range(5)))

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Ended):
            assert event.request not in self.ended, "ended twice"
            self.ended[event.request] = event
            return
        assert not set(event.requests) & self.ended.keys(), "told of behind its end"
        if isinstance(event, Spoken):
            self._spoken(event)
        else:
            self._read(event)

    def _spoken(self, event: Spoken) -> None:
        if event.states is not None:
            assert len(event.states) == len(event.tokens)
        for request, position, token, logprob, margin in zip(
            event.requests, event.positions, event.tokens, event.logprobs, event.margins, strict=True
        ):
            assert position == len(self.tokens[request])
            self.tokens[request].append(token)
            self.logprobs[request].append(logprob)
            self.margins[request].append(margin)

    def _read(self, event: Read) -> None:
        given = event.logits.double().log_softmax(-1).gather(-1, event.answer[:, None])[:, 0]
        columns = (event.answer, event.predicted.tokens, event.predicted.logprobs, given)
        assert len(event.states) == len(event.logits) == len(event.requests)
        for request, position, answer, said, logprob, own in zip(
            event.requests, event.positions, *(column.tolist() for column in columns), strict=True
        ):
            assert position == len(self.reads[request])
            self.reads[request].append((answer, said, logprob))
            self.given[request].append(own)

    @property
    def reasons(self) -> list[Reason]:
        """Of each request, in their order."""
        return [self.ended[request].reason for request in range(len(self.tokens))]


def answered(
    engine: Engine,
    requests: Sequence[Request],
    *,
    proposer: Any = None,
    tokens: int = 0,
    steps: list[Step] | None = None,
    draws: Draws | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> Told:
    """What a run tells, of which every request has one end. on_event: hears it too, afterwards."""
    told = Told.nothing(len(requests))

    def hear(event: Event) -> None:
        told.hear(event)
        on_event(event)

    engine.run(requests, Drafts(proposer, tokens, steps) if proposer else None, hear, draws)
    assert sorted(told.ended) == list(range(len(requests)))
    return told
