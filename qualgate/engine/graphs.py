"""Passes of few rows on a GPU, each launched as a whole: to launch its kernels one by one takes Python longer than the
GPU takes to run them.

A graph is what a pass launched, recorded to be launched again over the same memory. So a pass is written into buffers
that stay where they are, for so many rows and positions: rows that it has not stand in a block that no text has, which
lies behind all others, and nobody reads what comes of them. As rows do not depend on each other, the others have the
bits that they have without.

None of this is taken on trust: a graph's first pass is held against the same pass without, to the bit, in what it gives
and in the keys and values that it keeps. Where that does not hold, or a pass cannot be recorded, there are no graphs in
this run. They die with the keys and values that they point to.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.decoder import ModelDecoder
from qualgate.engine.packed import Decoder
from qualgate.errors import one_line
from qualgate.records import Overflow
from qualgate_kernels import dispatch
from qualgate_kernels.packs import PACK, SPAN, Packs, PreparedPlaces, packs_of
from qualgate_kernels.paged import Places
from qualgate_kernels.slots import SLOTS

ROWS = 1, 2, 4, 8, 16, 32, 64  # of a graph: a pass takes the least that holds it, one of more rows takes none
MOST = 24  # graphs at a time
WORTH = 8  # passes alike before one is recorded, for which whoever says a few tokens has no use
WHOLE = 64  # numbers: where a buffer begins in memory, kernels read as they read tensors of their own

Work = Callable[[], torch.Tensor]
Record = Callable[[Work], Work]
"""Of some work over tensors that stay where they are, what does it again; its result is written over each time. Any
error for work that cannot be recorded."""


class CudaRecorder:
    """Records on `device`. All its graphs take their memory from one pool: what one gave is copied before another runs.
    Not to be used again once they are gone, for torch takes no pool twice."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """See `Record`."""
        graph, now = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()  # compiles what is not compiled yet, which no recording may
        now.wait_stream(self._stream)
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                made = work()
        finally:
            torch.cuda.set_stream(now)  # where torch fails to end a recording it stays on its stream

        def replay() -> torch.Tensor:
            graph.replay()
            return made

        return replay


@dataclass(frozen=True, slots=True)
class Size:
    """Of a graph. rows; spans: see `packs.SPAN`, that a row may see; scratch: the block of rows that nobody reads."""

    rows: int
    spans: int
    scratch: int

    def packs_of(self, group: int, window: int) -> tuple[int, int]:
        """(Packs, spans of one) that such a pass has at most: every row a run of its own; of neighbours with a window
        those that it reaches into."""
        reached = (window + PACK - 2) // SPAN + 2 if window else self.spans
        return self.rows * -(-group // PACK), min(self.spans, reached)


class Buffers:
    """A pass of a size, in memory that stays where it is. asked: what packs are made for, (group, window) each."""

    def __init__(self, size: Size, asked: Sequence[tuple[int, int]], device: torch.device) -> None:
        self._size, rows, width = size, size.rows, size.spans * SPAN // SLOTS
        shapes: dict[Any, tuple[int, ...]] = {"token_ids": (rows, 2), "slots": (rows, 2)}  # of 64 bits
        shapes |= {"sequence": (rows,), "position": (rows,), "table": (rows, width)}
        shapes |= {one: (size.packs_of(*one)[0], 4) for one in asked}
        self._here = torch.zeros(sum(_whole(shape) for shape in shapes.values()), dtype=torch.int32)
        self._there = self._here.to(device, copy=True)
        self._views, views = _views(self._here, shapes), _views(self._there, shapes)
        self._places, places = _places(self._views), _places(views)
        self.places = PreparedPlaces(
            table=places.table,
            sequence=places.sequence,
            position=places.position,
            here=self._places,
            count=size.scratch + 1,
            row_slots=views["slots"],
            packs={one: Packs(views[one], size.packs_of(*one)[1]) for one in asked},
        )
        self.batch = Batch(
            token_ids=views["token_ids"],
            places=self.places,
            slots=views["slots"],
            wanted=torch.arange(rows, device=device),
            blocks=size.scratch + 1,
        )

    def fill(self, batch: Batch) -> bool:
        """Write a pass of at most so many rows; False for one of other packs than there is room for."""
        view, rows, places, scratch = self._views, len(batch.token_ids), batch.places, self._size.scratch
        (sequences, width), free = places.table.shape, self._size.rows - rows
        width = min(width, view["table"].shape[1])
        view["table"].fill_(scratch)
        view["table"][:sequences, :width] = places.table[:, :width]
        for name, numbers, filler in (
            ("token_ids", batch.token_ids, 0),
            ("slots", batch.slots, scratch * SLOTS),
            ("position", places.position, 0),
        ):
            view[name][:rows], view[name][rows:] = numbers, filler
        view["sequence"][:rows] = places.sequence
        view["sequence"][rows:] = torch.arange(sequences, sequences + free)
        for asked, there in self.places.packs.items():
            made = packs_of(self._places, *asked)
            if len(made.numbers) > len(view[asked]) or made.spans > there.spans:
                return False
            view[asked].zero_()[: len(made.numbers)] = made.numbers
        self._there.copy_(self._here)
        return True


def _whole(shape: Sequence[int]) -> int:
    return -(-torch.Size(shape).numel() // WHOLE) * WHOLE


def _views(numbers: torch.Tensor, shapes: dict[Any, tuple[int, ...]]) -> dict[Any, torch.Tensor]:
    """Parts of int32 [n] by their names; `token_ids` and `slots` as int64 [rows]."""
    parts = numbers.split([_whole(shape) for shape in shapes.values()])
    found = {
        name: part[: torch.Size(shape).numel()].view(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
    return found | {name: found[name].view(torch.int64)[:, 0] for name in ("token_ids", "slots")}


def _places(views: dict[Any, torch.Tensor]) -> Places:
    return Places(table=views["table"], sequence=views["sequence"], position=views["position"])


@dataclass(frozen=True, slots=True)
class _Graph:
    buffers: Buffers
    replay: Work

    def forward(self, batch: Batch) -> torch.Tensor | None:
        """See `Decoder`; None for a pass that it has no room for."""
        if not self.buffers.fill(batch):
            return None
        made, rows = self.replay(), len(batch.token_ids)
        return made[:rows].clone() if len(batch.wanted) == rows else made[batch.wanted.to(made.device)]


class GraphDecoder:
    """Passes by `decoder`, those of few rows from what was recorded of it. recorder: makes a Record for other keys and
    values; worth: see WORTH."""

    def __init__(
        self, decoder: Decoder, device: torch.device, recorder: Callable[[], Record], *, worth: int = WORTH
    ) -> None:
        self._decoder, self._device, self._recorder, self._worth = decoder, device, recorder, worth
        self._record: Record | None = None
        self._graphs: dict[Size, _Graph] = {}  # the one that was asked last is the last
        self._passes, self._states = Counter[Size](), KeysValues()
        self.off = ""  # why there are no graphs any more

    @property
    def graphs(self) -> tuple[Size, ...]:
        """Of which sizes there is one."""
        return tuple(self._graphs)

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """See `packed.Decoder`."""
        return self._decoder.overflow

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """See `packed.Decoder`. In `states` there is one block more."""
        if states is not self._states:
            self._graphs.clear()
            self._passes.clear()
            self._states, self._record = states, None
        size = self._size(batch, states)
        batch = replace(batch, blocks=batch.blocks + 1)
        if size is not None and (graph := self._graphs.pop(size, None)) is not None:
            self._graphs[size] = graph
            if (made := graph.forward(batch)) is not None:
                return made
        elif size is not None:
            self._passes[size] += 1
            if self._passes[size] >= self._worth:
                return self._first(size, batch, states, threads)
        return self._decoder.forward(batch, states, threads)

    def _size(self, batch: Batch, states: KeysValues) -> Size | None:
        """Of the graph for a pass; None where none serves it: too many rows, or no block for those that are not."""
        rows = next((rows for rows in ROWS if rows >= len(batch.token_ids)), None)
        room = states.layers and all(one.count > batch.blocks for one in states.layers.values())
        if self.off or rows is None or not room:
            return None
        spans = int(batch.places.position.max()) // SPAN + 1
        return Size(rows, 1 << (spans - 1).bit_length(), batch.blocks)

    def _first(self, size: Size, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """The pass without a graph; one is made of it, and stays if it does the same."""
        places = dispatch.prepare_places(batch.places, batch.blocks, self._device)
        expected = self._decoder.forward(replace(batch, places=places), states, threads)
        asked = tuple(places.packs) if isinstance(places, PreparedPlaces) else ()
        layers, slots, kept = (
            list(states.layers.values()),
            batch.slots.to(self._device),
            list[dict[str, torch.Tensor]](),
        )
        why = "a recorded pass has other bits than the same pass without"
        try:
            kept = [layer.at(slots) for layer in layers]
            buffers = Buffers(size, asked, self._device)
            buffers.fill(batch)
            self._record = self._record or self._recorder()
            graph = _Graph(buffers, self._record(lambda: self._decoder.forward(buffers.batch, states, threads)))
            for layer, numbers in zip(layers, kept, strict=True):  # what it does not keep would else be there
                layer.put(slots, {name: torch.zeros_like(one) for name, one in numbers.items()})
            found = [graph.forward(batch), *(one for layer in layers for one in layer.at(slots).values())]
            wanted = [expected, *(one for numbers in kept for one in numbers.values())]
            if all(_same(*pair) for pair in zip(found, wanted, strict=True)) and asked == tuple(buffers.places.packs):
                self._graphs[size], why = graph, ""
        except Exception as error:  # whatever a model does that no recording may, or memory was short
            why = f"a pass could not be recorded ({one_line(error)})"
        if why:
            for layer, numbers in zip(layers, kept, strict=False):
                layer.put(slots, numbers)
            self._graphs.clear()
            self.off = why
            logging.getLogger(__name__).warning("CUDA graphs are off for this run: %s", why)
        elif len(self._graphs) > MOST:
            del self._graphs[next(iter(self._graphs))]
        return expected


def _same(found: torch.Tensor | None, expected: torch.Tensor) -> bool:
    """To the bit."""
    if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return torch.equal(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def recorder(device: torch.device) -> Callable[[], Record] | None:
    """What makes a Record there; None where nothing does."""
    return partial(CudaRecorder, device) if device.type == "cuda" else None


def graphed(decoder: Decoder, device: torch.device) -> Decoder:
    """The decoder, its passes of few rows by graphs where `device` has them. Not where is looked for what a server's
    dtype does not hold: that waits for the GPU in every layer. Nor over several devices."""
    records = recorder(device)
    if records is None or not isinstance(decoder, ModelDecoder) or decoder.overflows is not None:
        return decoder
    if not decoder.on_one_device:
        return decoder
    return GraphDecoder(decoder, device, records)
