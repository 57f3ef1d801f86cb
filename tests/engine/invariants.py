"""What holds of every pass, looked at while it is made: where its rows stand, whose blocks they are in, by which number
each is drawn and behind which text each is masked. Of the packed engine, of models that draft and of draft heads.

Each is said a second time here, from what was said and kept, and held against what the pass was given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from qualgate.engine import draft_model, packed
from qualgate.engine.batch import Rows
from qualgate.engine.blocks import BlockPool
from qualgate.engine.constraint import GrammarMask
from qualgate.engine.draft_heads import proposer
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.packed import PackedEngine
from qualgate.engine.ruling import Ruling
from qualgate.engine.schedule import Part
from qualgate.engine.steering import Steering
from qualgate_kernels.slots import SLOTS

Row = tuple[int, int]  # request, position in its answer


@contextmanager
def held() -> Iterator[None]:
    """AssertionError in the block for a pass of which one of them does not hold."""
    watch = _Watch()
    with ExitStack() as stack:
        for where in (packed, draft_model, proposer):
            stack.enter_context(patch.object(where, "say", watch.saying(where, where.say)))
        for of, name, around in (
            (PackedEngine, "states_of", watch.pass_of_target),
            (DraftModel, "_pass", watch.pass_of_model),
            (DraftHead, "_pass", watch.pass_of_head),
            (Ruling, "verify", watch.ruled),
            (Steering, "steered", watch.steered),
            (GrammarMask, "admitted", _admitted),
        ):
            stack.enter_context(patch.object(of, name, around(getattr(of, name))))
        yield


class _Watch:
    """Of a test. due: by module the rows that are to be drawn next; texts: of each request of the target's pass, by the
    ids of what steers it too, its answer as far as this pass reads it."""

    def __init__(self) -> None:
        self.due: dict[Any, deque[Row]] = {packed: deque(), draft_model: deque(), proposer: deque()}
        self.texts: dict[int, list[int]] = {}
        self.drafted: dict[int, int] = {}
        self.steers: dict[int, int] = {}
        self.within = False

    def pass_of_target(self, states_of: Any) -> Any:
        """Around `PackedEngine.states_of`, but not where it halves a pass."""

        def around(engine: PackedEngine, parts: Sequence[Part]) -> torch.Tensor:
            if self.within or engine._schedule is None:
                return states_of(engine, parts)
            holding = {block for one in engine._schedule.going for block in one.blocks}
            assert engine._pool.used == len(holding), "blocks are held by nobody who goes on"
            read, limits = sum(len(part.tokens) - part.drafted for part in parts), engine.limits
            decoding = all(part.stream.decodes for part in parts)
            assert read <= limits.rows or decoding, "more is read in a pass than may be"
            assert len({part.stream.index for part in parts}) == len(parts) <= limits.sequences
            for part in parts:
                _part(part, engine._pool)
            self._expect(parts)
            self.within = True
            try:
                return states_of(engine, parts)
            finally:
                self.within = False

        return around

    def _expect(self, parts: Sequence[Part]) -> None:
        due, self.texts, self.drafted, self.steers = self.due[packed], {}, {}, {}
        due.clear()
        for part in parts:
            one = part.stream
            answer = one.text[len(one.request.prompt) :] if one.forced else one.generated
            text = [*answer, *part.tokens[len(part.tokens) - part.drafted :]]
            last = part.first + len(part.tokens) - len(one.request.prompt) if one.forced else len(text)
            due.extend((one.index, position) for position in range(last - part.wants + 1, last + 1))
            self.texts[one.index], self.drafted[one.index] = text, part.drafted
            if one.request.steering is not None:
                self.steers[id(one.request.steering)] = one.index

    def pass_of_model(self, made: Any) -> Any:
        """Around `DraftModel._pass`."""

        def around(model: DraftModel, parts: Sequence[Any]) -> Any:
            due = self.due[draft_model]
            for part in parts:
                row, read = part.stream, len(part.tokens) - len(part.draft)
                assert part.first == len(row.cached), _first(part.first, len(row.cached))
                assert row.cached == row.text[: part.first], "what is kept is of another text"
                assert [*part.tokens[:read]] == row.text[part.first : part.first + read], "rows are not of their text"
                assert row.text == [*row.text[: len(row.prompt) + row.first], *row.drafted]
                _blocks(part, getattr(model._blocks, "_pool", None))
                last = len(row.text) + len(part.draft) - len(row.prompt)
                due.extend((row.index, position) for position in range(last - part.wants + 1, last + 1))
            return made(model, parts)

        return around

    def pass_of_head(self, made: Any) -> Any:
        """Around `DraftHead._pass`. Of a pair the position is that of its state."""

        def around(head: DraftHead, parts: Sequence[Any]) -> Any:
            for part in parts:
                row, places = part.stream, max(0, part.wants - 1)  # that are read in one pass, masked
                ends = part.first + len(part.tokens) - places
                assert ends == row.cached + len(row.drafted), _first(part.first, row.cached + len(row.drafted))
                if row.drafted:
                    assert [*part.tokens] == row.drafted[-1:], "what was drafted last is read"
                else:
                    tokens = row.text[row.next + 1 - (ends - part.first) : row.next + 1]
                    assert [*part.tokens][: ends - part.first] == tokens, "pairs are not of their text"
                _blocks(part, head._pool)
                here = len(row.text) - len(row.prompt) + len(row.drafted)
                self.due[proposer].extend((row.index, here + place) for place in range(part.wants))
            return made(head, parts)

        return around

    def saying(self, where: Any, say: Any) -> Any:
        """Around `say` as a module has it."""

        def around(draws: Any, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int]) -> Any:
            due = self.due[where]
            if due:
                expected = [due.popleft() for _ in rows]
                assert [*zip(rows, positions, strict=True)] == expected, "rows are drawn by others' numbers"
            return say(draws, logits, rows, positions)

        return around

    def ruled(self, said: Any) -> Any:
        """Around `Ruling.verify`."""

        def around(ruling: Ruling, row: int, round: Any, draft: Any, *rest: Any) -> Any:
            if row in self.texts:
                text, count = self.texts[row], self.drafted[row]
                assert round == (len(text) - count,), "a round is known by what was said before it"
                assert [*draft.tokens] == text[len(text) - count :], "another draft is judged than was read"
            return said(ruling, row, round, draft, *rest)

        return around

    def steered(self, made: Any) -> Any:
        """Around `Steering.steered`."""

        def around(steering: Steering, logits: torch.Tensor, said: Sequence[int], offered: Sequence[int]) -> Any:
            index = self.steers.get(id(steering))
            if index is not None:
                whole = [*said, *offered]
                assert whole == self.texts[index][: len(whole)], "rows are steered behind another text than their own"
            return made(steering, logits, said, offered)

        return around


def _admitted(made: Any) -> Any:
    """Around `GrammarMask.admitted`: its state is behind the text that its last row is behind."""

    def around(mask: GrammarMask, said: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        rows = made(mask, said, offered)
        if rows:
            assert mask._read == [*said, *offered][: len(said) + len(rows) - 1], "a mask is of another text"
        return rows

    return around


def _part(part: Part, pool: BlockPool) -> None:
    one, read = part.stream, len(part.tokens) - part.drafted
    assert part.first == one.cached, _first(part.first, one.cached)
    assert [*part.tokens[:read]] == one.text[part.first : part.first + read], "rows are not of their text"
    assert not part.drafted or part.first + read == len(one.text), "a draft does not stand behind its text"
    assert one.forced or one.text == [*one.request.prompt, *one.generated], "a text is not what was asked and said"
    _blocks(part, pool)


def _blocks(part: Rows, pool: BlockPool | None) -> None:
    blocks, last = part.stream.blocks, part.first + len(part.tokens)
    assert len(blocks) * SLOTS >= last, "rows stand behind their blocks"
    assert len({*blocks}) == len(blocks), "a block stands twice in a table"
    if pool is None:  # lent by the target's, which looks at them itself
        return
    assert all(pool._users[block] > 0 for block in blocks), "a block of a table is held by nobody"
    for block in blocks[part.first // SLOTS : -(-last // SLOTS)]:
        assert pool._users[block] == 1 or block in pool._unread, "rows are written into a block that others read"


def _first(found: int, kept: int) -> str:
    return f"the first row stands at position {found}, and {kept} keys and values are kept"
