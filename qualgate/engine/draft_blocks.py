"""Where the keys and values of a model that drafts lie: in blocks of its own, or behind the text in its target's.

A self-draft has the layers and heads of the model that verifies it. It sees the text by the keys and values that the
target made of it, so it reads nothing before its first draft and keeps nothing: what it writes stands behind the text,
where the target's next pass writes its own before it looks (QuantSpec 2502.10424 shares them likewise). It is only a
draft that sees them: no answer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from qualgate.engine.attention import KeysValues
from qualgate.engine.blocks import BlockPool
from qualgate.speculation.text import agreed
from qualgate_kernels.slots import SLOTS


class Text(Protocol):
    """A row's. kept: the tokens whose keys and values stand in `blocks`, from the beginning of `text` on."""

    index: int
    prompt: Sequence[int]
    kept: list[int]
    blocks: list[int]
    text: list[int]


class Blocks(Protocol):
    """reads: whether a text is to be read before its first draft."""

    reads: bool

    @property
    def states(self) -> KeysValues:
        """Where a pass reads and writes."""
        ...

    @property
    def count(self) -> int:
        """Blocks that there are."""
        ...

    @property
    def used(self) -> int:
        """Of them, those that are held for drafts alone."""
        ...

    def rewind(self, row: Text) -> None:
        """Keep what stands there of its text, all but its last token at most."""
        ...

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """Have blocks for so many positions, if need be those of rows that are not drafted for now; whether it has."""
        ...

    def know(self, row: Text) -> None:
        """What is kept of its prompt, others may begin with."""
        ...

    def release(self, row: Text) -> None:
        """It drafts no more."""
        ...


class OwnBlocks:
    """So many, which nobody else reads. form, scales: see `KeysValues`."""

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
        """See `Blocks`. A row that has none begins with those of a prompt that begins alike."""
        if not row.blocks:
            row.blocks = self._pool.shared(row.prompt, most=(len(row.prompt) - 1) // SLOTS)
            row.kept = list(row.prompt[: len(row.blocks) * SLOTS])
        del row.kept[min(agreed(row.kept, row.text), len(row.text) - 1) :]

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """See `Blocks`."""
        wanted = -(-positions // SLOTS) - len(row.blocks)
        for other in idle if wanted > self._pool.free else ():
            self.release(other)
        if wanted > self._pool.free:
            return False
        row.blocks += [self._pool.take() for _ in range(wanted)]
        return True

    def know(self, row: Text) -> None:
        """See `Blocks`."""
        self._pool.know(row.blocks, row.prompt[: len(row.kept)])

    def release(self, row: Text) -> None:
        """See `Blocks`."""
        self._pool.release(row.blocks)
        row.blocks, row.kept = [], []


class Lender(Protocol):
    """The target's engine, in a run."""

    @property
    def states(self) -> KeysValues:
        """Its keys and values."""
        ...

    @property
    def blocks(self) -> int:
        """How many of them it has."""
        ...

    def lend(self, request: int, positions: int) -> list[int] | None:
        """See `Schedule.lend`."""
        ...


class LentBlocks:
    """Those of the target's, behind each text: at whatever depth a cascade drafts, who verifies writes over them."""

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
        """See `Blocks`: whoever verifies has read it."""
        row.kept = row.text[:-1]

    def reach(self, row: Text, positions: int, idle: Iterable[Text]) -> bool:
        """See `Blocks`: nobody else's are taken."""
        found = self._lender.lend(row.index, positions)
        row.blocks = found or []
        return found is not None

    def know(self, row: Text) -> None:
        """See `Blocks`: nothing that others may begin with."""

    def release(self, row: Text) -> None:
        """See `Blocks`: they go with the text."""
        row.blocks, row.kept = [], []
