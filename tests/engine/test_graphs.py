"""Passes from recorded graphs, bit for bit beside the same passes without: on a CPU, where a recording is the same
Python over the same memory. `interpreted_engine.py` does it with a GPU's kernels."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from qualgate.engine import graphs
from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.draft_blocks import LentBlocks, OwnBlocks
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.graphs import Buffers, CudaRecorder, GraphDecoder, Size, graphed
from qualgate.engine.request import Request, Spoken
from qualgate.engine.row_check import TOKENS, read, same_bits, texts
from qualgate.engine.schedule import Part, Stream
from qualgate.engine.speculation.ngram import Ngram
from qualgate_kernels.packs import SPAN, Packs, packs_of
from qualgate_kernels.paged import Places
from qualgate_kernels.slots import SLOTS
from tests.engine.engines import END, answered, asked, opened, questions, reference

CPU = torch.device("cpu")
ASKS_THE_GPU = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2")
CUTS = (((13, 9), (1, 1), (3, 1), (1, 4), (17, 0), (2, 2), (1, 1), (2, 5)), ((38, 0), *[(0, 1)] * 20, (1, 2), (1, 1)))


class NoQuestions(TorchDispatchMode):
    """A recording cannot hold what is decided by a number on the GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.name().split(".")[0] not in ASKS_THE_GPU, func
        return func(*args, **(kwargs or {}))


class Replaying:
    """Records as a GPU does: what is replayed reads and writes the tensors that were there."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, work):
        self.recorded += 1
        with NoQuestions():
            made = work()

        def replay():
            self.replayed += 1
            with NoQuestions():
                made.copy_(work())
            return made

        return replay


def with_graphs(engine, record, worth=1):
    engine._decoder = GraphDecoder(engine._decoder, CPU, lambda: record, worth=worth)
    return engine._decoder


def said(told):
    """All but the seconds, states too."""
    states = [event.states for event in told.events if isinstance(event, Spoken) and event.states is not None]
    return told.tokens, told.logprobs, told.margins, told.reads, told.given, told.reasons, states


def alike(one, other):
    *found, states = said(one)
    *expected, theirs = said(other)
    assert found == expected
    assert len(states) == len(theirs)
    assert all(same_bits(*pair) for pair in zip(states, theirs, strict=True))


def kept(engine):
    """Of all texts, without the block of rows that are none."""
    return [one.first(engine.blocks) for _, one in sorted(engine.states.layers.items())]


@pytest.mark.parametrize("how", ["alone", "drafted", "read"])
def test_answers_and_what_is_kept_of_them_have_the_bits_that_they_have_without(how):
    """Prompts that begin alike share blocks, a draft is verified in passes of several rows of a text."""
    requests = asked(questions(), **({"answer": tuple(range(30, 39))} if how == "read" else {}))
    drafts = {"proposer": Ngram(), "tokens": 3} if how == "drafted" else {}
    with opened("packed", reference("packed")) as engine:
        expected, states = answered(engine, requests, **drafts), kept(engine)
    record = Replaying()
    with opened("packed", reference("packed")) as engine:
        decoder = with_graphs(engine, record)
        alike(answered(engine, requests, **drafts), expected)
        assert decoder.off == ""
        assert record.recorded == len(decoder.graphs) >= 2
        assert record.replayed > 10
        for one, other in zip(kept(engine), states, strict=True):
            assert torch.equal(one.keys, other.keys)
            assert torch.equal(one.values, other.values)


@pytest.mark.parametrize("lent", [True, False])
def test_who_drafts_by_graphs_drafts_the_same_in_blocks_of_its_own_or_its_targets(lent):
    def drafted(engine, decoder):
        blocks = LentBlocks(engine) if lent else OwnBlocks(200)
        steps, draft = [], DraftModel("one", decoder, engine.head, blocks=blocks, threads=1, stop_ids=frozenset({END}))
        told = answered(engine, asked(questions()[:4]), proposer=draft, tokens=3, steps=steps)
        return told, [step.counts for step in steps]

    record = Replaying()
    with opened("packed", reference("packed")) as engine:
        expected, counts = drafted(engine, engine.decoder)
    with opened("packed", reference("packed")) as engine:
        plain, decoder = engine.decoder, with_graphs(engine, record)
        own = GraphDecoder(plain, CPU, lambda: record, worth=1)
        found, its = drafted(engine, own)
        alike(found, expected)
        assert its == counts
        assert (own.off, decoder.off) == ("", "")
        assert own.graphs
        assert decoder.graphs


@pytest.mark.parametrize("cuts", CUTS)
def test_however_texts_are_cut_into_passes_rows_have_their_bits(cuts):
    """A pass of fewer rows behind one of more: what that left in the buffers is not read."""
    what, record = texts(reference("packed")), Replaying()
    assert [sum(column) for column in zip(*cuts, strict=True)] == [*TOKENS]
    with opened("packed", reference("packed")) as engine:
        expected = read(engine.decoder, engine.head, what, cuts)
        found = read(with_graphs(engine, record), engine.head, what, cuts)
    assert all(same_bits(*pair) for pair in zip(found, expected, strict=True))
    assert record.replayed > record.recorded > 1


def test_graphs_die_with_the_keys_and_values_that_they_point_to():
    short, long = asked(questions()[:1]), asked(questions(), max_new_tokens=12)
    with opened("packed", reference("packed")) as engine:
        expected = answered(engine, long)
    record = Replaying()
    with opened("packed", reference("packed")) as engine:
        decoder = with_graphs(engine, record)
        answered(engine, short)
        recorded = record.recorded
        there = weakref.ref(engine.states.layers[0].keys)
        alike(answered(engine, long), expected)  # which wants more blocks
        assert record.recorded > recorded
        assert {size.scratch for size in decoder.graphs} == {engine.blocks}
        gc.collect()
        assert there() is None


def test_without_a_block_for_rows_that_are_none_there_is_no_graph():
    """Another decoder was the first that used these keys and values."""
    what, record = texts(reference("packed")), Replaying()
    with opened("packed", reference("packed")) as engine:
        expected = read(engine.decoder, engine.head, what, CUTS[0])
        states = KeysValues()
        part = Part(Stream(0, Request(prompt=(5,), max_new_tokens=1), [5], blocks=[0]), 0, [5], 1)
        engine.decoder.forward(batch([part], sum(-(-length // SLOTS) for length in TOKENS)), states, 1)
        found = read(with_graphs(engine, record), engine.head, what, CUTS[0], states=states)
    assert record.recorded == 0
    assert all(same_bits(*pair) for pair in zip(found, expected, strict=True))


def raises(work):
    raise RuntimeError("operation not permitted when stream is capturing")


def one_bit_off(work):
    made = work()

    def replay():
        made.copy_(work())
        made[-1, 0] = made[-1, 0].view(torch.int32).bitwise_xor(1).view(torch.float32)
        return made

    return replay


def keeps_nothing(work):
    made = work()
    return lambda: made


@pytest.mark.parametrize(
    ("record", "because"),
    [(raises, "could not be recorded .*capturing"), (one_bit_off, "other bits"), (keeps_nothing, "other bits")],
)
def test_a_graph_that_does_not_do_what_the_pass_does_is_none_and_the_log_says_so(record, because, caplog):
    """The first pass of full size, so that its last row is somebody's."""
    tried = []

    def once(work):
        tried.append(work)
        return record(work)

    with opened("packed", reference("packed")) as engine:
        expected, states = answered(engine, asked(questions()[:1])), kept(engine)
    with opened("packed", reference("packed")) as engine, caplog.at_level(logging.WARNING):
        decoder = with_graphs(engine, once)
        alike(answered(engine, asked(questions()[:1])), expected)
        assert all(torch.equal(one.keys, other.keys) for one, other in zip(kept(engine), states, strict=True))
    assert (len(tried), decoder.graphs) == (1, ())
    assert [line for line in caplog.messages if "graphs" in line] == [
        f"CUDA graphs are off for this run: {decoder.off}"
    ]
    assert re.search(because, decoder.off)


def test_no_more_graphs_are_held_than_may_be_and_passes_seen_once_are_not_worth_one(monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 2)
    what, record = texts(reference("packed")), Replaying()
    cuts = ((30, 1), (1, 0), (1, 1), (1, 3), (0, 1), (0, 1), (0, 2), (0, 4))
    with opened("packed", reference("packed")) as engine:
        decoder = with_graphs(engine, record)
        read(decoder, engine.head, what, cuts)
        assert [size.rows for size in decoder.graphs] == [2, 4]
        assert record.recorded == 6  # of 1, 2 and 4 rows, twice each: the third lets the first go
        engine._decoder = decoder._decoder
        decoder = with_graphs(engine, record, worth=3)
        read(decoder, engine.head, what, cuts)
        assert [size.rows for size in decoder.graphs] == [1]


def test_only_where_something_records_passes_are_recorded(monkeypatch):
    with opened("packed", reference("packed")) as engine:
        assert graphed(engine.decoder, CPU) is engine.decoder
        monkeypatch.setattr(graphs, "recorder", lambda device: Replaying)
        assert isinstance(graphed(engine.decoder, CPU), GraphDecoder)
        engine.decoder.overflows = object()
        assert graphed(engine.decoder, CPU) is engine.decoder
    with opened("plain", reference("plain")) as engine:
        assert graphed(engine.decoder, CPU) is engine.decoder


def passed(runs, scratch):
    """A pass of such runs of rows, (first position, rows) each, of texts whose blocks lie one behind the other."""
    parts, held = [], 0
    for index, (first, rows) in enumerate(runs):
        count = -(-(first + rows) // SLOTS)
        stream = Stream(index, Request(prompt=(1,), max_new_tokens=1), [], blocks=list(range(held, held + count)))
        parts.append(Part(stream, first, list(range(rows)), 1))
        held += count
    assert held <= scratch
    return batch(parts, scratch + 1)


def _places_alone(places):
    return Places(table=places.table, sequence=places.sequence, position=places.position)


def _parts(buffers):
    """All that kernels are handed."""
    places = buffers.places
    packs = [one.numbers for one in places.packs.values()]
    return [buffers.batch.token_ids, places.slots, places.table, places.sequence, places.position, *packs]


@given(
    st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 20)), min_size=1, max_size=8),
    st.integers(1, 40), st.integers(0, 600),
)  # fmt: skip
def test_buffers_hold_whatever_pass_of_their_size_comes_and_nothing_of_the_one_before(runs, group, window):
    count = sum(rows for _, rows in runs)
    spans = max(first + rows - 1 for first, rows in runs) // SPAN + 1
    size = Size(count + 3, 1 << (spans - 1).bit_length(), 1000)
    buffers = Buffers(size, [(group, window)], CPU)
    assert buffers.fill(passed([(1, 20)] * (count // 20) + [(7, 1)] * (count % 20), 1000))  # as many rows as that
    one = passed(runs, 1000)
    assert buffers.fill(one)
    found, places = buffers.batch, buffers.places
    assert torch.equal(found.token_ids, torch.cat([one.token_ids, torch.zeros(3, dtype=torch.int64)]))
    assert torch.equal(found.slots[:count], one.slots)
    assert torch.equal(found.slots, _places_alone(places).slots)
    assert all(tensor.storage_offset() * tensor.element_size() % 16 == 0 for tensor in _parts(buffers))
    assert (places.table[len(runs) :] == 1000).all()  # of whose rows none is a text's
    assert (found.slots[count:] // SLOTS == 1000).all()
    assert len(set(places.sequence[count:].tolist())) == 3
    packs, expected = places.packs[group, window], packs_of(one.places, group, window)
    rest = packs.numbers[len(expected.numbers) :]
    assert torch.equal(packs.numbers[: len(expected.numbers)], expected.numbers)
    assert set(rest[:, 0].tolist()) <= {0, count, count + 1, count + 2}
    assert packs.spans >= expected.spans


def test_a_pass_of_other_packs_than_there_is_room_for_is_not_one_for_these_buffers():
    buffers = Buffers(Size(2, 1, 9), [(4, 0)], CPU)
    assert buffers.fill(passed([(3, 1), (9, 1)], 9))
    buffers.places.packs[4, 0] = Packs(buffers.places.packs[4, 0].numbers, 0)
    assert not buffers.fill(passed([(3, 1), (9, 1)], 9))


@pytest.fixture
def cuda(monkeypatch):
    """What torch is told, in order; graph.fails: recordings end so, which as in torch leaves their stream in use."""
    told, now = [], ["main"]

    class Stream(str):
        def wait_stream(self, other):
            told.append(f"{self} waits for {other}")

    class Graph:
        fails = False

        def replay(self):
            told.append("replay")

    @contextmanager
    def stream(one):
        before, now[0] = now[0], str(one)
        yield
        now[0] = before

    @contextmanager
    def graph(recorded, *, pool, stream, capture_error_mode):
        before, now[0] = now[0], str(stream)
        told.append(f"record in {pool}, {capture_error_mode}")
        yield
        if Graph.fails:
            raise RuntimeError("operation failed due to a previous error during capture")
        now[0] = before

    fakes = {
        "Stream": lambda device: Stream("side"), "current_stream": lambda device: Stream(now[0]), "stream": stream,
        "set_stream": lambda one: now.__setitem__(0, str(one)), "graph": graph, "CUDAGraph": Graph,
        "graph_pool_handle": lambda: "a pool",
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return SimpleNamespace(told=told, now=now, graph=Graph)


def test_on_a_gpu_a_pass_is_warmed_up_and_recorded_on_a_stream_of_its_own(cuda):
    def work():
        cuda.told.append(f"work on {cuda.now[0]}")
        return torch.ones(1)

    record = CudaRecorder(torch.device("cuda"))
    replay = record(work)
    begins = ["side waits for main", "work on side", "main waits for side", "record in a pool, thread_local"]
    assert cuda.told == [*begins, "work on side"]
    assert replay() is replay()  # written over each time
    assert cuda.told[5:] == ["replay", "replay"]
    cuda.graph.fails = True
    with pytest.raises(RuntimeError, match="during capture"):
        record(work)
    assert cuda.now == ["main"]
