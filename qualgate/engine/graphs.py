"""CUDA graphs for passes of few rows: launching their kernels one by one from Python takes longer than running them.

A graph replays recorded launches over the same memory. So a pass is written into fixed buffers for a number of rows and
positions: missing rows stand in a block behind all others, and their results are ignored. Rows do not depend on each
other, so the real rows keep their bits.

Every graph is checked: its first pass is compared to the bit with the same pass without it, in its results and in the
keys and values it keeps. If they differ, or a pass cannot be recorded, this run uses no graphs. Graphs are dropped with
the keys and values that they point to.
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

ROWS = 1, 2, 4, 8, 16, 32, 64  # of a graph: a pass takes the smallest that fits, if any
MOST = 24  # graphs at a time
WORTH = 8  # equal passes before one is recorded: shorter runs gain nothing
WHOLE = 64  # numbers: alignment of a buffer in memory, as of tensors of their own

Work = Callable[[], torch.Tensor]
Record = Callable[[Work], Work]
"""Of some work over tensors that stay where they are, what does it again; its result is written over each time. Any
error for work that cannot be recorded."""


class CudaRecorder:
    """Record graphs on `device`. All of them share one memory pool: a result is copied before another graph runs. Do
    not reuse a recorder once its graphs are gone, because torch accepts no pool twice."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """See `Record`."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()  # compiles what is not compiled yet, which no recording may
        current.wait_stream(self._stream)
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                output = work()
        finally:
            torch.cuda.set_stream(current)  # where torch fails to end a recording it stays on its stream

        def replay() -> torch.Tensor:
            graph.replay()
            return output

        return replay


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a graph. rows: of the pass; spans: that a row may see, see `packs.SPAN`; scratch: the block of unused
    rows."""

    rows: int
    spans: int
    scratch: int

    def packs_of(self, group: int, window: int) -> tuple[int, int]:
        """Return the most (packs, spans per pack) of such a pass: every row in a run of its own, or those that a window
        reaches."""
        reached = (window + PACK - 2) // SPAN + 2 if window else self.spans
        return self.rows * -(-group // PACK), min(self.spans, reached)


class Buffers:
    """The input of a pass in fixed memory. pack_keys: (group, window) of each set of packs."""

    def __init__(self, size: Size, pack_keys: Sequence[tuple[int, int]], device: torch.device) -> None:
        """Allocate the buffers of a recorded pass.

        size: its rows and spans; pack_keys: the kinds of packs that its attention reads, as `PreparedPlaces` names
        them.
        """
        self._size, rows, width = size, size.rows, size.spans * SPAN // SLOTS
        shapes: dict[Any, tuple[int, ...]] = {"token_ids": (rows, 2), "slots": (rows, 2)}  # of 64 bits
        shapes |= {"sequence": (rows,), "position": (rows,), "table": (rows, width)}
        shapes |= {key: (size.packs_of(*key)[0], 4) for key in pack_keys}
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
            packs={key: Packs(views[key], size.packs_of(*key)[1]) for key in pack_keys},
        )
        self.batch = Batch(
            token_ids=views["token_ids"],
            places=self.places,
            slots=views["slots"],
            wanted=torch.arange(rows, device=device),
            blocks=size.scratch + 1,
        )

    def fill(self, batch: Batch) -> bool:
        """Write a pass into the buffers; False if its packs do not fit."""
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
        for key, packs in self.places.packs.items():
            new_packs = packs_of(self._places, *key)
            if len(new_packs.numbers) > len(view[key]) or new_packs.spans > packs.spans:
                return False
            view[key].zero_()[: len(new_packs.numbers)] = new_packs.numbers
        self._there.copy_(self._here)
        return True


def _whole(shape: Sequence[int]) -> int:
    return -(-torch.Size(shape).numel() // WHOLE) * WHOLE


def _views(numbers: torch.Tensor, shapes: dict[Any, tuple[int, ...]]) -> dict[Any, torch.Tensor]:
    """Return named parts of int32 [n]; `token_ids` and `slots` as int64 [rows]."""
    parts = numbers.split([_whole(shape) for shape in shapes.values()])
    views = {
        name: part[: torch.Size(shape).numel()].view(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
    return views | {name: views[name].view(torch.int64)[:, 0] for name in ("token_ids", "slots")}


def _places(views: dict[Any, torch.Tensor]) -> Places:
    return Places(table=views["table"], sequence=views["sequence"], position=views["position"])


@dataclass(frozen=True, slots=True)
class _Graph:
    buffers: Buffers
    replay: Work

    def forward(self, batch: Batch) -> torch.Tensor | None:
        """See `Decoder`; None if the pass does not fit."""
        if not self.buffers.fill(batch):
            return None
        output, rows = self.replay(), len(batch.token_ids)
        return output[:rows].clone() if len(batch.wanted) == rows else output[batch.wanted.to(output.device)]


class GraphDecoder:
    """Run passes by `decoder`, those of few rows by recorded graphs. recorder: makes a Record for other keys and
    values; worth: see WORTH."""

    def __init__(
        self, decoder: Decoder, device: torch.device, recorder: Callable[[], Record], *, worth: int = WORTH
    ) -> None:
        """Wrap `decoder`. recorder: creates what records a pass, once one is worth it; worth: passes of a size before
        it is recorded."""
        self._decoder, self._device, self._recorder, self._worth = decoder, device, recorder, worth
        self._record: Record | None = None
        self._graphs: dict[Size, _Graph] = {}  # least recently used first
        self._passes, self._states = Counter[Size](), KeysValues()
        self.off = ""  # why graphs are off

    @property
    def graphs(self) -> tuple[Size, ...]:
        """Sizes of the recorded graphs."""
        return tuple(self._graphs)

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """See `packed.Decoder`."""
        return self._decoder.overflow

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """See `packed.Decoder`. `states` has one more block than the batch."""
        if states is not self._states:
            self._graphs.clear()
            self._passes.clear()
            self._states, self._record = states, None
        size = self._size(batch, states)
        batch = replace(batch, blocks=batch.blocks + 1)
        if size is not None and (graph := self._graphs.pop(size, None)) is not None:
            self._graphs[size] = graph
            if (output := graph.forward(batch)) is not None:
                return output
        elif size is not None:
            self._passes[size] += 1
            if self._passes[size] >= self._worth:
                return self._first(size, batch, states, threads)
        return self._decoder.forward(batch, states, threads)

    def _size(self, batch: Batch, states: KeysValues) -> Size | None:
        """Return the size of the graph for a pass; None for too many rows, or without a block for unused rows."""
        rows = next((rows for rows in ROWS if rows >= len(batch.token_ids)), None)
        room = states.layers and all(blocks.count > batch.blocks for blocks in states.layers.values())
        if self.off or rows is None or not room:
            return None
        spans = int(batch.places.position.max()) // SPAN + 1
        return Size(rows, 1 << (spans - 1).bit_length(), batch.blocks)

    def _first(self, size: Size, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """Run the pass without a graph; record one, and keep it if it gives the same."""
        places = dispatch.prepare_places(batch.places, batch.blocks, self._device)
        expected = self._decoder.forward(replace(batch, places=places), states, threads)
        pack_keys = tuple(places.packs) if isinstance(places, PreparedPlaces) else ()
        layers, slots, saved = (
            list(states.layers.values()),
            batch.slots.to(self._device),
            list[dict[str, torch.Tensor]](),
        )
        why = "a recorded pass has other bits than the same pass without"
        try:
            saved = [layer.at(slots) for layer in layers]
            buffers = Buffers(size, pack_keys, self._device)
            buffers.fill(batch)
            self._record = self._record or self._recorder()
            graph = _Graph(buffers, self._record(lambda: self._decoder.forward(buffers.batch, states, threads)))
            for layer, numbers in zip(layers, saved, strict=True):  # what it does not keep would else be there
                layer.put(slots, {name: torch.zeros_like(tensor) for name, tensor in numbers.items()})
            actual = [graph.forward(batch), *(tensor for layer in layers for tensor in layer.at(slots).values())]
            reference = [expected, *(tensor for numbers in saved for tensor in numbers.values())]
            if all(_same(*pair) for pair in zip(actual, reference, strict=True)) and pack_keys == tuple(
                buffers.places.packs
            ):
                self._graphs[size], why = graph, ""
        except Exception as error:  # whatever a model does that no recording may, or memory was short
            why = f"a pass could not be recorded ({one_line(error)})"
        if why:
            for layer, numbers in zip(layers, saved, strict=False):
                layer.put(slots, numbers)
            self._graphs.clear()
            self.off = why
            logging.getLogger(__name__).warning("CUDA graphs are off for this run: %s", why)
        elif len(self._graphs) > MOST:
            del self._graphs[next(iter(self._graphs))]
        return expected


def _same(actual: torch.Tensor | None, expected: torch.Tensor) -> bool:
    """Return whether both are equal to the bit."""
    if actual is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return torch.equal(actual.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def recorder(device: torch.device) -> Callable[[], Record] | None:
    """Return a factory of Records for `device`; None if it has none."""
    return partial(CudaRecorder, device) if device.type == "cuda" else None


def graphed(decoder: Decoder, device: torch.device) -> Decoder:
    """Return the decoder, with graphs for passes of few rows if `device` has them. Not while overflows are watched,
    which waits for the GPU in every layer, nor over several devices."""
    records = recorder(device)
    if records is None or not isinstance(decoder, ModelDecoder) or decoder.overflows is not None:
        return decoder
    if not decoder.on_one_device:
        return decoder
    return GraphDecoder(decoder, device, records)
