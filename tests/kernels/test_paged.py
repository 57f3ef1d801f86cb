"""Attention over blocks, against float64 over the whole sequence; and each row's bits, whatever rides along."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qualgate_kernels import cpu, dispatch, paged
from qualgate_kernels.cpu import paged as in_c
from qualgate_kernels.kept import FORMS
from qualgate_kernels.paged import Places, Seen, attend_torch, keep_torch, new_blocks
from qualgate_kernels.slots import SLOTS
from tests.tables import each_row

PATHS = [path for path in ("scalar", "avx2", "avx512") if path in cpu.paths()] if not in_c.missing() else []
needs_c = pytest.mark.skipif(not PATHS, reason="the kernels were not compiled here")


class Sequences:
    """Some sequences of random keys and values, and blocks that hold them in any order."""

    def __init__(self, lengths, kv_heads=2, dim=32, seed=0, form="float32", **scales):
        self.generator = torch.Generator().manual_seed(seed)
        width = -(-max(lengths) // SLOTS)
        spare = torch.randperm(width * len(lengths) + 3, generator=self.generator).int()
        self.table = spare[: width * len(lengths)].view(len(lengths), width).contiguous()
        self.blocks = new_blocks(len(spare), kv_heads, dim, form=form, **scales)
        dtype = torch.bfloat16 if form == "bfloat16" else torch.float32
        self.keys, self.values = (
            [torch.randn(n, kv_heads, dim, generator=self.generator).to(dtype).float() for n in lengths]
            for _ in range(2)
        )

    def places(self, rows):
        """rows: (sequence, position) each."""
        sequence, position = (torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True))
        return Places(table=self.table, sequence=sequence, position=position)

    def filled(self, keep=dispatch.keep_paged):
        for number, keys in enumerate(self.keys):
            keep(self.blocks, self.places([(number, p) for p in range(len(keys))]), keys, self.values[number])
        return self

    def query(self, rows, heads):
        return torch.randn(rows, heads, self.blocks.head_dim, generator=self.generator)


def oracle(query, sequences, rows, seen):
    """float64, from the definition."""
    out = []
    for row, (number, position) in zip(query.double(), rows, strict=True):
        first = max(0, position - seen.window + 1) if seen.window else 0
        group = len(row) // sequences.blocks.kv_heads
        keys, values = (
            held[number][first : position + 1].double().repeat_interleave(group, 1)
            for held in (sequences.keys, sequences.values)
        )
        logits = torch.einsum("hd,phd->hp", row, keys) * seen.scale
        if seen.soft_cap:
            logits = seen.soft_cap * torch.tanh(logits / seen.soft_cap)
        weights = logits.exp()
        total = weights.sum(-1) + (seen.sinks.double().exp() if seen.sinks is not None else 0)
        out.append(torch.einsum("hp,phd->hd", weights, values) / total[:, None])
    return torch.stack(out)


SEEN = {
    "plain": Seen(scale=0.2),
    "soft cap": Seen(scale=1.0, soft_cap=3.0),
    "window": Seen(scale=0.2, window=20),
    "a window of one": Seen(scale=0.2, window=1),
    "sinks": Seen(scale=0.2, sinks=torch.randn(8, generator=torch.Generator().manual_seed(1))),
    "all": Seen(scale=0.5, soft_cap=2.0, window=17, sinks=torch.randn(8, generator=torch.Generator().manual_seed(2))),
}
ROWS = [(0, 0), (1, 15), (1, 16), (1, 17), (1, 18), (1, 19), (2, 49), (0, 3), (3, 32), (3, 33), (2, 5)]


def attended(query, sequences, rows, seen, path):
    if path == "twin":
        return attend_torch(query, sequences.blocks, sequences.places(rows), seen)
    return in_c.attend(query, sequences.blocks, sequences.places(rows), seen, 1, path)


@each_row("path", ["twin", *PATHS])
@each_row("name", SEEN)
@each_row(("kv_heads", "dim"), [(8, 16), (4, 32), (2, 48), (1, 80), (2, 128)])
def test_a_row_sees_its_sequence_up_to_itself(path, name, kv_heads, dim):
    sequences = Sequences([4, 20, 50, 34], kv_heads, dim).filled()
    query = sequences.query(len(ROWS), 8)
    found = attended(query, sequences, ROWS, SEEN[name], path)
    torch.testing.assert_close(found.double(), oracle(query, sequences, ROWS, SEEN[name]), atol=5e-6, rtol=1e-5)


def test_which_path_serves_is_said():
    assert dispatch.paged_path(new_blocks(1, 1, 16)) == ("c" if PATHS else f"torch twin: {in_c.missing()}")
    assert dispatch.paged_path(new_blocks(1, 1, 16, form="int4")) == ("c" if PATHS else f"torch twin: {in_c.missing()}")
    assert dispatch.paged_path(new_blocks(1, 1, 16, device="meta")) == "torch twin: no kernel for meta"
    assert dispatch.paged_path(new_blocks(1, 1, 512, device="meta")) == "torch twin: head_dim is above 256"
    assert dispatch.paged_path(new_blocks(1, 1, 16, form="int8", device="meta")) == "torch twin: no kernel for meta"


@needs_c
@each_row("path", PATHS)
@each_row("name", SEEN)
@each_row(("heads", "form"), [(2, "float32"), (6, "bfloat16"), (8, "int4"), (22, "int8"), (22, "fp8")])
def test_a_rows_bits_are_those_it_has_alone(path, name, heads, form):
    sequences = Sequences([4, 20, 50, 34], 2, 48, form=form).filled()
    sinks = None if SEEN[name].sinks is None else torch.randn(heads, generator=sequences.generator)
    seen, query = replace(SEEN[name], sinks=sinks), sequences.query(len(ROWS), heads)
    together = attended(query, sequences, ROWS, seen, path)
    for index, row in enumerate(ROWS):
        alone = attended(query[index : index + 1].contiguous(), sequences, [row], seen, path)
        assert torch.equal(alone[0], together[index])
    for threads in (2, 3):
        again = in_c.attend(query, sequences.blocks, sequences.places(ROWS), seen, threads, path)
        assert torch.equal(again, together)


@needs_c
@pytest.mark.parametrize("form", FORMS)
def test_what_stands_behind_a_row_or_in_other_blocks_has_no_say_were_it_infinite(form):
    sequences = Sequences([40, 40], 2, 32, form=form).filled()
    rows, seen = [(0, 10), (0, 11), (0, 12)], Seen(scale=0.2)
    query = sequences.query(3, 4)
    before = attended(query, sequences, rows, seen, PATHS[-1])
    behind = sequences.places([(0, p) for p in range(13, 40)] + [(1, p) for p in range(40)])
    bad = torch.full((67, 2, 32), torch.inf)
    keep_torch(sequences.blocks, behind, bad, bad * torch.nan)
    assert torch.equal(attended(query, sequences, rows, seen, PATHS[-1]), before)


@needs_c
@pytest.mark.parametrize("form", FORMS)
def test_kept_keys_and_values_lie_where_the_twin_lays_them(form):
    one, two = (Sequences([40, 7], 3, 48, seed=5, form=form) for _ in range(2))
    for number in range(2):
        rows = [(number, p) for p in range(len(one.keys[number]))]
        keep_torch(one.blocks, one.places(rows), one.keys[number], one.values[number])
        in_c.keep(two.blocks, two.places(rows).slots, two.keys[number], two.values[number], 1)
    for name, tensor in one.blocks.tensors.items():
        assert torch.equal(tensor, two.blocks.tensors[name]), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"position": torch.tensor([5, 5], dtype=torch.int32)}, "ascending"),
        ({"position": torch.tensor([5, 99], dtype=torch.int32)}, "position: expected 0 to"),
        ({"position": torch.tensor([-1, 5], dtype=torch.int32)}, "position: expected 0 to"),
        ({"sequence": torch.tensor([0, 9], dtype=torch.int32)}, "sequence: expected one of"),
        ({"sequence": torch.tensor([0, 0])}, "sequence: expected int32"),
        ({"table": torch.full((1, 3), 77, dtype=torch.int32)}, "table: expected blocks"),
    ],
)
def test_places_that_are_not_there_are_refused(change, said):
    sequences = Sequences([40], 2, 32).filled()
    places = replace(sequences.places([(0, 5), (0, 6)]), **change)
    with pytest.raises(ValueError, match=said):
        dispatch.attend_paged(sequences.query(2, 4), sequences.blocks, places, Seen(scale=1.0))


def test_arguments_that_do_not_fit_are_refused():
    sequences = Sequences([40], 2, 32).filled()
    places, query = sequences.places([(0, 5), (0, 6)]), sequences.query(2, 4)
    for bad in (query.double(), query[:1], query[:, :3], query.transpose(0, 1)):
        with pytest.raises(ValueError, match="query: expected"):
            dispatch.attend_paged(bad, sequences.blocks, places, Seen(scale=1.0))
    with pytest.raises(ValueError, match="sinks: expected"):
        dispatch.attend_paged(query, sequences.blocks, places, Seen(scale=1.0, sinks=torch.zeros(3)))
    with pytest.raises(ValueError, match="sinks: expected"):
        dispatch.attend_paged(query, sequences.blocks, places, Seen(scale=1.0, sinks=torch.zeros(8)[::2]))
    with pytest.raises(ValueError, match="query: expected a tensor on cpu"):
        dispatch.attend_paged(query.to("meta"), sequences.blocks, places, Seen(scale=1.0))
    elsewhere = replace(places, position=places.position.to("meta"))
    with pytest.raises(ValueError, match="position: expected it with the others"):
        dispatch.attend_paged(query, sequences.blocks, elsewhere, Seen(scale=1.0))
    with pytest.raises(ValueError, match="form: expected one of float32, bfloat16, fp8, int8, int4, got 'float16'"):
        new_blocks(1, 1, 16, form="float16")
    with pytest.raises(ValueError, match="window"):
        dispatch.attend_paged(query, sequences.blocks, places, Seen(scale=1.0, window=-1))
    with pytest.raises(ValueError, match="head_dim"):
        new_blocks(3, 2, 20)
    with pytest.raises(ValueError, match="key: expected"):
        dispatch.keep_paged(sequences.blocks, places, query, query[:, :2])


@pytest.mark.parametrize("path", ["twin", *PATHS])
def test_between_rows_far_apart_the_table_may_say_anything(path):
    sequences = Sequences([300], 1, 16).filled()
    rows, seen = [(0, 130), (0, 190)], Seen(scale=0.2, window=2)
    query = sequences.query(2, 2)
    sequences.table[0, 9:11] = torch.tensor([-(2**30), 2**30])
    found = attended(query, sequences, rows, seen, path)
    torch.testing.assert_close(found.double(), oracle(query, sequences, rows, seen), atol=5e-6, rtol=1e-5)


@needs_c
def test_c_looks_for_itself_what_it_is_given():
    """A block outside is refused there, too: not every caller is `dispatch`."""
    sequences = Sequences([40], 2, 32).filled()
    sequences.table[0, 1] = 1_000
    with pytest.raises(RuntimeError, match="out of range"):
        in_c.attend(sequences.query(1, 4), sequences.blocks, sequences.places([(0, 20)]), Seen(scale=1.0), 1)


def test_without_the_library_the_twin_serves(monkeypatch):
    sequences = Sequences([40], 2, 32).filled()
    monkeypatch.setattr(in_c, "_entries", lambda: "not compiled")
    called = []
    monkeypatch.setattr(paged, "attend_torch", lambda *args: called.append(args) or attend_torch(*args))
    dispatch.attend_paged(sequences.query(1, 4), sequences.blocks, sequences.places([(0, 20)]), Seen(scale=1.0))
    assert called
