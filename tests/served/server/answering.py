"""The engine in a thread of its own: what was asked meanwhile is its next batch. A row's bits do not depend on it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from qualgate.engine.choice import open_engine
from qualgate.engine.constraint import GrammarMask, Vocabulary
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.request import Ended, Engine, Event, Read, Reason, Request, Spoken
from qualgate.engine.sampling import Draws, noise_numbers
from qualgate.engine.steering import Steering
from qualgate.engine.stopping import Stops
from tests.served.server.asked import Question
from tests.served.server.read import Entries, listed

MOST_ROWS = 64  # of one batch


@dataclass(frozen=True, slots=True)
class Token:
    """One that was said."""

    number: int
    logprob: float  # nats


@dataclass(slots=True)
class Asking:
    """A question under way. told: tokens as they are said, then why there are no more, or what went wrong."""

    question: Question
    loop: asyncio.AbstractEventLoop
    told: asyncio.Queue[Token | Reason | Exception] = field(default_factory=asyncio.Queue)
    cancelled: threading.Event = field(default_factory=threading.Event)
    read: list[Entries] = field(default_factory=list)  # of its prompt's tokens behind the first, before it is answered

    def tell(self, what: Token | Reason | Exception) -> None:
        """From the engine's thread."""
        self.loop.call_soon_threadsafe(self.told.put_nowait, what)


class Answering:
    """Answers questions with one arm. Use it as a context manager: the thread ends with it."""

    def __init__(self, arm: LoadedArm) -> None:
        self.arm = arm
        self._waiting: queue.SimpleQueue[Asking | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._words: Vocabulary | None = None

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *failed: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def ask(self, question: Question) -> Asking:
        """From the event loop."""
        asking = Asking(question, asyncio.get_running_loop())
        self.take(asking)
        return asking

    def take(self, asking: Asking) -> None:
        """For the next batch."""
        self._waiting.put(asking)

    def _run(self) -> None:
        with open_engine(self.arm.model, self.arm.choice, self.arm.stored) as engine:
            while (first := self._waiting.get()) is not None:
                batch, last = [first], False
                while len(batch) < MOST_ROWS and not self._waiting.empty():
                    if (another := self._waiting.get()) is None:
                        last = True
                        break
                    batch.append(another)
                for together in _of_one_sampling(batch):
                    self._answer(engine, together)
                if last:
                    return

    def _answer(self, engine: Engine, batch: Sequence[Asking]) -> None:
        try:
            self._read(engine, [asking for asking in batch if asking.question.read is not None])
            for asking in batch:
                if not asking.question.max_new_tokens:
                    asking.tell("length")
            if not (batch := [asking for asking in batch if asking.question.max_new_tokens]):
                return
            requests = [self._request(asking.question) for asking in batch]
            sampling, draws = batch[0].question.sampling, None
            if sampling.drawn:
                seeds = [str(asking.question.seed) for asking in batch]
                draws = Draws(seed=0, cases=noise_numbers(seeds, torch.device("cpu")), sampling=sampling)

            def on_event(event: Event) -> None:
                self._tell(engine, batch, event)

            engine.run(requests, None, on_event, draws)
        except Exception as error:
            for asking in batch:
                asking.tell(error)

    def _read(self, engine: Engine, batch: Sequence[Asking]) -> None:
        """What each prompt's tokens are to the model."""
        batch = [asking for asking in batch if len(asking.question.prompt) > 1]
        wanted = {at: asking.question.read or 0 for at, asking in enumerate(batch)}

        def on_event(event: Event) -> None:
            if isinstance(event, Read):
                for row, entries in listed(event, wanted):
                    batch[row].read.append(entries)
            elif isinstance(event, Ended) and event.reason == "broken":
                raise ValueError("its logits are not finite")

        prompts = [asking.question.prompt for asking in batch]
        if prompts:
            engine.run([Request(prompt=one[:1], answer=one[1:]) for one in prompts], None, on_event)

    def _tell(self, engine: Engine, batch: Sequence[Asking], event: Event) -> None:
        if isinstance(event, Ended):
            batch[event.request].tell(event.reason)
        elif isinstance(event, Spoken):
            for row, token, logprob in zip(event.requests, event.tokens, event.logprobs, strict=True):
                batch[row].tell(Token(token, logprob))
                if batch[row].cancelled.is_set():
                    engine.abort(row)

    def _request(self, asked: Question) -> Request:
        stops = Stops(self.arm.tokenizer, [asked.until])
        mask = None
        if asked.constraint:
            self._words = self._words or Vocabulary(self.arm.tokenizer, self.arm.stop_ids)
            mask = GrammarMask(self._words, asked.constraint)
        steered = mask is not None or bool(asked.sampling.penalties)
        return Request(
            prompt=asked.prompt,
            max_new_tokens=asked.max_new_tokens,
            stop_ids=frozenset(self.arm.stop_ids),
            stops=partial(stops.reached, 0) if stops.watches(0) else None,
            steering=Steering(asked.prompt, asked.sampling, mask) if steered else None,
        )


def _of_one_sampling(batch: Sequence[Asking]) -> list[list[Asking]]:
    """A run of the engine has one."""
    groups: dict[object, list[Asking]] = {}
    for asking in batch:
        groups.setdefault(asking.question.sampling, []).append(asking)
    return list(groups.values())
