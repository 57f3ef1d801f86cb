"""Engines on the reference model and on tiny ones, opened as tests want them, and what they told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from qualgate.engine.request import Ended, Engine, Event, Read, Reason, Request, Spoken
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import Limits, Schedule
from qualgate_kernels.paged import SLOTS

Kind = Literal["plain", "packed", "padded"]
PACKED: tuple[Kind, ...] = ("plain", "packed")  # through C, and through the model's own modules
KINDS: tuple[Kind, ...] = (*PACKED, "padded")
ROOM = 4096  # blocks: more than any test needs


def load(folder: Path) -> Any:
    """The model of a folder, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)


def laid_out(model: Any) -> Any:
    """The same model, with the linear layers that packed passes want."""
    assert lay_out(model) == ""
    return model


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
        columns = (event.answer, event.said.tokens, event.said.logprobs, given)
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
    draws: Draws | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> Told:
    """What a run tells, of which every request has one end. on_event: hears it too, afterwards."""
    told = Told.nothing(len(requests))

    def hear(event: Event) -> None:
        told.hear(event)
        on_event(event)

    engine.run(requests, proposer, hear, draws)
    assert sorted(told.ended) == list(range(len(requests)))
    return told
