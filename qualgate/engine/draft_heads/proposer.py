"""A proposer that reads its target's states: all rows draft side by side in packed passes of one layer.

For a pair (state before a token, token) the layer's output stands for the state at that token. It gives the first token
of a draft; the next pass takes that output and that token as a pair, and so on (EAGLE, 2401.15077). The target's states
later overwrite what the layer's own outputs left in the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.blocks import BlockPool
from qualgate.engine.draft_heads.ahead_layer import AheadLayer
from qualgate.engine.draft_heads.eagle3 import Eagle3Layer
from qualgate.engine.draft_heads.rows import HELD, Row, adopt, begun, pairs_of
from qualgate.engine.draft_model import Head
from qualgate.engine.room import is_short
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws, say
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.text import MOST_MATCHED
from qualgate_kernels.slots import SLOTS

ROWS = 512  # of a pass that reads


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of one text in a pass, see `batch.Rows`; states: float32 [rows, width], one per token."""

    stream: Row
    first: int
    tokens: Sequence[int]
    wants: int
    states: torch.Tensor


class DraftHead:
    """Draft with `layer`, greedily or with the target's noise."""

    runs_model = True

    def __init__(
        self,
        name: str,
        layer: Eagle3Layer | AheadLayer,
        head: Head,
        embed: Callable[[torch.Tensor], torch.Tensor],
        *,
        blocks: int,
        threads: int,
        stop_ids: frozenset[int],
        draws: Draws | Ruling | None = None,
    ) -> None:
        """head, embed: the target's; embed maps int64 [n] to [n, width]; blocks: for keys and values. draws: as in
        `DraftModel`."""
        self.name = name
        self.broken = 0  # drafts that ended with logits that are no numbers
        self._layer, self._head, self._embed, self._threads = layer, head, embed, threads
        self._stop_ids, self._ruling = stop_ids, draws if isinstance(draws, Ruling) else None
        self._draws = draws.draws if isinstance(draws, Ruling) else draws
        self._states, self._pool = KeysValues(), BlockPool(blocks)
        self._rows: dict[int, Row] = {}
        self._asked = set[int]()  # rows that are drafted for now
        self._off = False

    def read(self, row: int, prompt: Sequence[int], first: int, states: torch.Tensor) -> None:
        """See `Reader`. A row that nobody drafts for keeps only the last states, and starts anew when it is drafted
        for."""
        if self._off:
            return
        head_row = self._rows.get(row)
        if head_row is None or not head_row.add(first, states):
            self.ended(row)
            head_row = self._rows[row] = begun(row, prompt, first, self._pool)
            head_row.add(first, states)
        if head_row.end - head_row.next <= HELD:
            return
        if head_row.next + HELD < len(prompt):
            head_row.text = [*prompt[: head_row.next + HELD + 1]]
            self._guarded(lambda: self._read_on(head_row))
        elif head_row.next < first:
            self.ended(row)
            self.read(row, prompt, first, states)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`. Returns no drafts once memory was short."""
        if self._off:
            return [NO_DRAFT] * len(requests)
        self._asked = {request.row for request in requests}
        rows = [self._row(request) for request in requests]
        self._guarded(lambda: self._go(rows))
        return [self._drafted(row) if row.drafted else NO_DRAFT for row in rows]

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        if ended_row := self._rows.pop(row, None):
            self._pool.release(ended_row.blocks)

    @property
    def blocks_used(self) -> int:
        """Number of blocks in use."""
        return self._pool.used

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run `step`; if memory was short in it, drop all rows and draft no more in this run."""
        try:
            step()
        except Exception as error:
            if not is_short(error):
                raise
            self._off = True
            for row in list(self._rows):
                self.ended(row)

    def _row(self, request: DraftRequest) -> Row:
        """Return the row of a request. A row without states is not drafted for."""
        row = self._rows.get(request.row) or Row(request.row, request.prompt)
        row.text, row.drafted, row.state = [*request.prompt, *request.generated], [], None
        row.first, row.most, row.round, row.drawn_from = len(request.generated), request.most, request.round, []
        row.over = row.end < len(row.text) - 1 or row.pending < 1
        return row

    def _go(self, rows: Sequence[Row]) -> None:
        while drafting := [row for row in rows if row.left > 0]:
            if parts := self._parts(drafting):
                self._pass(parts)

    def _read_on(self, row: Row) -> None:
        """Read on in a row that is not drafted for, and drop it if it gets no blocks."""
        row.over, row.most, row.drafted = False, 0, []
        if part := self._part(row, row.pending):
            self._pass([part])
        else:
            self.ended(row.index)

    def _parts(self, rows: Sequence[Row]) -> list[_Part]:
        """Return the parts of the next pass. Of texts with the same beginning the first is read before the others reuse
        its blocks."""
        parts, count = list[_Part](), 0
        begins = any(row.whole and row.pending > 0 and row.next < len(row.prompt) - 1 for row in rows)
        for row in rows:
            if not row.whole and not row.cached:
                if begins:
                    continue
                adopt(row, self._pool)
            if part := self._part(row, max(1, ROWS - count)):
                parts.append(part)
                count += len(part.tokens)
            if count >= ROWS:
                break
        return parts

    def _part(self, row: Row, most: int) -> _Part | None:
        """Return the next part of a row: up to `most` pairs from the target, or the pair that it drafted itself.

        None, and the row is over, if there are no blocks for it.
        """
        if row.pending > 0:
            count = min(row.pending, most)
            tokens, wants = row.text[row.next + 1 : row.next + 1 + count], int(count == row.pending and row.most > 0)
            if self._room(row, row.cached + count):
                first, states = row.cached, self._layer.entered(row.take(count))
                return _Part(row, first, tokens, wants, states)
        elif row.state is not None and self._room(row, row.cached + len(row.drafted)):
            return _Part(row, row.cached + len(row.drafted) - 1, row.drafted[-1:], 1, row.state)
        row.over = True
        return None

    def _pass(self, parts: Sequence[_Part]) -> None:
        """Run one pass over `parts`, index the blocks of prompts that it filled, and draft where a part wants a
        token."""
        passed = batch(parts, self._pool.count)
        x = self._layer.joined(self._embed(passed.token_ids).float(), torch.cat([part.states for part in parts]))
        states = self._layer.forward(x, passed, self._states, self._threads)
        self._pool.filled()
        for part in parts:
            row = part.stream
            if row.whole and part.first < len(row.prompt) - 1:
                self._pool.know(row.blocks, pairs_of(row.prompt)[: row.cached])
        if wanting := [part for part in parts if part.wants]:
            self._say(wanting, states)

    def _say(self, parts: Sequence[_Part], states: torch.Tensor) -> None:
        """Draft one token for each part from its state, float32 [parts, width]. A row ends at a stop token."""
        rows, logits = [part.stream for part in parts], self._head.logits(states)
        sampled = say(self._draws, logits, [row.index for row in rows], [row.first + len(row.drafted) for row in rows])
        tokens, finite = sampled.tokens.tolist(), sampled.finite.tolist()
        for index, row in enumerate(rows):
            if not finite[index]:  # the target goes on alone
                self.broken += 1
                row.over = True
                continue
            token = tokens[index] if self._ruling is None else self._ruled(self._ruling, row, logits[index : index + 1])
            row.drafted.append(token)
            row.state = states[index : index + 1]
            row.over = token in self._stop_ids

    def _ruled(self, ruling: Ruling, row: Row, logits: torch.Tensor) -> int:
        draft, _ = ruling.drafted(row.index, (*row.round, len(row.drafted)), NO_DRAFT, logits, self.name)
        assert draft.drawn_from is not None, "a rule tells what it drew from"
        row.drawn_from.append(draft.drawn_from)
        return draft.tokens[0]

    def _drafted(self, row: Row) -> Draft:
        drawn_from = torch.cat(row.drawn_from) if row.drawn_from else None
        return Draft(tuple(row.drafted), self.name, MOST_MATCHED, drawn_from)

    def _room(self, row: Row, positions: int) -> bool:
        """Return whether there are blocks for so many positions; rows that are not drafted for now may lose theirs."""
        needed = -(-positions // SLOTS) - len(row.blocks)
        for idle_row in list(self._rows.values()) if needed > self._pool.free else ():
            if idle_row.index not in self._asked and idle_row is not row:
                self.ended(idle_row.index)
        if needed > self._pool.free:
            return False
        row.blocks += [self._pool.take() for _ in range(needed)]
        return True
