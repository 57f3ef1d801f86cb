"""A decoder without weights: a row's state is a number made of all tokens up to it, read through its blocks, and so is
what it says. Whoever shows it a wrong block, position or stale slot gets another answer, or an AssertionError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.packed import PackedEngine
from qualgate.engine.schedule import Limits
from qualgate_kernels.slots import SLOTS

VOCABULARY, END = 5, 0


def state_of(tokens: Sequence[int]) -> int:
    state = 0
    for token in tokens:
        state = hash((state, token))
    return state


def says(tokens: Sequence[int], odd: int = 0) -> int:
    """What follows: END one time in 11. odd: of 8, how often this model says something else than one that is never."""
    state = state_of(tokens)
    if state // 1009 % 8 < odd:
        return 1 + state // 10007 % (VOCABULARY - 1)
    return END if state % 11 == 0 else 1 + state // 11 % (VOCABULARY - 1)


def plainly(prompt: Sequence[int], most: int, odd: int = 0, ends: Sequence[int] = (END,)) -> list[int]:
    """An answer, one token at a time."""
    said: list[int] = []
    while len(said) < most:
        said.append(says([*prompt, *said], odd))
        if said[-1] in ends:
            break
    return said


@dataclass(eq=False)
class FakeDecoder:
    """odd: see `says`; wrong: texts behind which its logits are no numbers. passes: rows of each."""

    odd: int = 0
    wrong: Sequence[Sequence[int]] = ()
    passes: list[int] = field(default_factory=list)
    overflow: tuple[Any, ...] = ()
    slots: dict[int, tuple[int, ...]] = field(default_factory=dict)  # the text up to the token that stands there

    def forward(self, batch: Batch, states: Any, threads: int) -> torch.Tensor:
        """Logits of the wanted rows, as states."""
        places, rows = batch.places, len(batch.token_ids)
        self.passes.append(rows)
        table, texts = places.table.tolist(), list[tuple[int, ...]]()
        for row in range(rows):
            blocks, position = table[int(places.sequence[row])], int(places.position[row])
            slot = blocks[position // SLOTS] * SLOTS + position % SLOTS
            assert slot == int(batch.slots[row])
            before = ()
            if position:
                last = position - 1
                before = self.slots[blocks[last // SLOTS] * SLOTS + last % SLOTS]
                for at in range(position):
                    here = self.slots[blocks[at // SLOTS] * SLOTS + at % SLOTS]
                    assert here == before[: at + 1], "what a row sees is one text, from its beginning on"
            assert len(before) == position
            self.slots[slot] = (*before, int(batch.token_ids[row]))
            texts.append(self.slots[slot])
        return self.logits([texts[row] for row in batch.wanted.tolist()])

    def logits(self, texts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Behind each text."""
        logits = torch.zeros(len(texts), VOCABULARY)
        for row, text in zip(logits, texts, strict=True):
            row[says(text, self.odd)] = 1.0
            if any(text[-len(one) :] == tuple(one) for one in self.wrong):
                row[:] = torch.nan
        return logits


@dataclass(eq=False)
class FakeStates(KeysValues):
    """The slots of a decoder."""

    decoder: FakeDecoder = field(default_factory=FakeDecoder)

    def copy(self, blocks: Sequence[tuple[int, int]]) -> None:
        before = dict(self.decoder.slots)
        for there, here in blocks:
            for at in range(SLOTS):
                if there * SLOTS + at in before:
                    self.decoder.slots[here * SLOTS + at] = before[there * SLOTS + at]

    def emptied(self) -> FakeStates:
        return self


class FakeHead:
    """States are logits."""

    vocabulary = VOCABULARY

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states


def fake_engine(decoder: FakeDecoder, *, blocks: int = 4096, limits: Limits | None = None) -> PackedEngine:
    head: Any = FakeHead()
    return PackedEngine(
        decoder,
        head,
        FakeStates(decoder=decoder),
        room=blocks * SLOTS,
        position_bytes=1,
        threads=1,
        limits=limits or Limits(),
    )
