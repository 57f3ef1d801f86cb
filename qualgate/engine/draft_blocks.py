"""Where a draft model's keys and values are stored: in blocks of its own, or behind the text in the target's blocks.

A self-draft has the layers and heads of the model that verifies it. It reuses the target's KV cache, so it reads
nothing before its first draft and keeps nothing: it writes behind the text, where the target's next pass overwrites it
before use (QuantSpec 2502.10424 shares the cache likewise). Only drafts see these values, never an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from qualgate.engine.attention import KeysValues
from qualgate.engine.blocks import BlockPool
from qualgate.engine.speculation.text import agreed
from qualgate_kernels.slots import SLOTS


class Text(Protocol):
    """A row of a draft model. cached: tokens whose keys and values stand in `blocks`, from the beginning of `text`
    on."""

    index: int
    prompt: Sequence[int]
    cached: list[int]
    blocks: list[int]
    text: list[int]


class Blocks(Protocol):
    """Storage for a draft model's keys and values. reads: whether a text must be read before its first draft."""

    reads: bool

    @property
    def states(self) -> KeysValues:
        """Keys and values of a pass."""
        ...

    @property
    def count(self) -> int:
        """Number of blocks."""
        ...

    @property
    def used(self) -> int:
        """Number of blocks in use for drafts alone."""
        ...

    def rewind(self, row: Text) -> None:
        """Keep the cached part of its text, without the last token at least."""
        ...

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """Return whether blocks for so many positions are available; `idle` rows may lose theirs."""
        ...

    def know(self, row: Text) -> None:
        """Let other rows share the cached part of its prompt."""
        ...

    def release(self, row: Text) -> None:
        """Free the blocks of a row that drafts no more."""
        ...


class OwnBlocks:
    """Blocks of the draft model alone. form, scales: see `KeysValues`."""

    reads = True

    def __init__(
        self, count: int, form: str = "float32", scales: Mapping[int, tuple[float, float]] | None = None
    ) -> None:
        self.states, self._pool = KeysValues(form, scales or {}), BlockPool(count)

    @property
    def count(self) -> int:
        """See `Blocks`."""
        return self._pool.count

    @property
    def used(self) -> int:
        """See `Blocks`."""
        return self._pool.used

    def rewind(self, row: Text) -> None:
        """See `Blocks`. A row without blocks starts from those of a prompt with the same beginning."""
        if not row.blocks:
            row.blocks = self._pool.shared(row.prompt, most=(len(row.prompt) - 1) // SLOTS)
            row.cached = list(row.prompt[: len(row.blocks) * SLOTS])
        del row.cached[min(agreed(row.cached, row.text), len(row.text) - 1) :]

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """See `Blocks`."""
        needed = -(-positions // SLOTS) - len(row.blocks)
        for idle_row in idle if needed > self._pool.free else ():
            self.release(idle_row)
        if needed > self._pool.free:
            return False
        row.blocks += [self._pool.take() for _ in range(needed)]
        return True

    def know(self, row: Text) -> None:
        """See `Blocks`."""
        self._pool.know(row.blocks, row.prompt[: len(row.cached)])

    def release(self, row: Text) -> None:
        """See `Blocks`."""
        self._pool.release(row.blocks)
        row.blocks, row.cached = [], []


class Lender(Protocol):
    """The target's engine during a run."""

    @property
    def states(self) -> KeysValues:
        """The target's keys and values."""
        ...

    @property
    def blocks(self) -> int:
        """Number of the target's blocks."""
        ...

    def lend(self, request: int, positions: int) -> list[int] | None:
        """See `Schedule.lend`."""
        ...


class LentBlocks:
    """The target's blocks behind each text: at every level of a cascade the verifier overwrites them."""

    reads, used = False, 0

    def __init__(self, lender: Lender) -> None:
        self._lender = lender

    @property
    def states(self) -> KeysValues:
        """See `Blocks`."""
        return self._lender.states

    @property
    def count(self) -> int:
        """See `Blocks`."""
        return self._lender.blocks

    def rewind(self, row: Text) -> None:
        """See `Blocks`: the verifier has read the text."""
        row.cached = row.text[:-1]

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """See `Blocks`: no other row's blocks are taken."""
        blocks = self._lender.lend(row.index, positions)
        row.blocks = blocks or []
        return blocks is not None

    def know(self, row: Text) -> None:
        """See `Blocks`: nothing can be shared."""

    def release(self, row: Text) -> None:
        """See `Blocks`: the target frees them."""
        row.blocks, row.cached = [], []
