from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate_kernels import packs as module
from qualgate_kernels.packs import PACK, SPAN, packs_of, prepare
from tests.kernels.test_paged import ROWS, Sequences

CPU = torch.device("cpu")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2000), min_size=1, max_size=40, unique=True)),
             min_size=1, max_size=6),
    st.integers(1, 40), st.integers(0, 600),
)  # fmt: skip
def test_every_pair_is_in_one_pack_of_its_run(runs, group, window):
    sequences = Sequences([2001] * 4, 1, 16)
    rows = []
    for number, positions in runs:  # two runs of one sequence, one after the other, are one that goes on ascending
        before = rows[-1][1] if rows and rows[-1][0] == number else -1
        rows += [(number, position) for position in sorted(positions) if position > before]
    packs = packs_of(sequences.places(rows), group, window)
    covered = []
    for start, count, number, spans in packs.numbers.tolist():
        pairs = range(number * PACK, min(number * PACK + PACK, count * group))
        mine = [rows[start + pair // group] for pair in pairs]
        assert len({sequence for sequence, _ in mine}) == 1
        low = max(mine[0][1] - window + 1, 0) if window else 0
        assert spans == len({position // SPAN for position in range(low, mine[-1][1] + 1)})
        covered += [start * group + pair for pair in pairs]
    assert sorted(covered) == list(range(len(rows) * group))
    assert packs.spans == packs.numbers[:, 3].max()


def test_packs_are_made_once_for_all_layers_that_ask_alike(monkeypatch):
    made = []

    def counted(*asked):
        made.append(asked[1:])
        return packs_of(*asked)

    monkeypatch.setattr(module, "packs_of", counted)
    sequences = Sequences([4, 20, 50, 34])
    places = prepare(sequences.places(ROWS), sequences.blocks.count, CPU)
    found = [places.packs_of(*asked) for asked in ((4, 0), (4, 17), (4, 0), (4, 17))]
    assert made == [(4, 0), (4, 17)]
    assert found[0] is found[2] is not found[1]
    assert torch.equal(found[1].numbers, packs_of(sequences.places(ROWS), 4, 17).numbers)
    assert torch.equal(places.slots, sequences.places(ROWS).slots)


def test_prepared_places_are_for_no_fewer_blocks_than_they_were_looked_at_for():
    sequences = Sequences([4, 20, 50, 34])
    places = prepare(sequences.places(ROWS), 15, CPU)
    places.check(15, CPU)
    places.check(16, CPU)
    with pytest.raises(ValueError, match="prepared for 15 blocks on cpu, got 14"):
        places.check(14, CPU)
    with pytest.raises(ValueError, match="got 15 on meta"):
        places.check(15, torch.device("meta"))
