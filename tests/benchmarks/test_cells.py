from __future__ import annotations

import math

from tests.benchmarks import cells
from tests.benchmarks.cells import AUTO, Cell
from tests.benchmarks.speculating import Told
from tests.benchmarks.speedup import Accepted, PassTimes


def cell(gain, foretold=None, *, by="x", tokens=2, task="a"):
    return Cell(by=by, tokens=tokens, batch=1, task=task, gain=gain, foretold=foretold, unlike=0)


def test_cells_are_near_what_was_foretold_or_not():
    found = [cell(1.0, 1.09), cell(1.0, 0.91), cell(2.0, 2.3), cell(1.0, tokens=AUTO)]
    assert cells.within(found, 0.1) == 2 / 3
    assert cells.within(found, 0.2) == 1


def test_as_many_as_pay_are_held_against_the_one_length_that_is_best_for_all_or_none():
    found = [
        cell(1.5, tokens=2), cell(0.5, tokens=2, task="b"), cell(2.0, tokens=4), cell(0.8, tokens=4, task="b"),
        cell(2.0, tokens=AUTO), cell(1.0, tokens=AUTO, task="b"), cell(0.5, by="y"), cell(0.9, by="y", tokens=AUTO),
    ]  # fmt: skip
    best = cells.against_best(found)
    assert math.isclose(best["x"], math.sqrt(2.0) / math.sqrt(1.6))
    assert math.isclose(best["y"], 0.9)  # against plain decoding, which is better than either


def test_a_cell_is_the_middle_one_of_its_turns():
    def turn(plain, own, drafting):
        said = {way: [Told(tokens=[(5,) * 11], first=[0.0], last=[seconds], passes=[], levels=[])]
                for way, seconds in ((cells.PLAIN, plain), (("mxfp4", 1), own))}  # fmt: skip
        times = PassTimes(target={(1, 0): 1.0, (1, 1): 1.0}, draft={1: (0.0, drafting)})
        return cells.Turn(runs=said, times={"mxfp4": times})

    turns = [turn(2.0, 1.0, 1.0), turn(9.0, 1.0, 0.0), turn(3.0, 2.0, 1e9)]
    one = cells._cell(("mxfp4", 1), 1, "code", turns, [Accepted(drafted=1.0, chances=(1.0,))])
    assert one.gain == 2.0
    assert one.foretold == 1.0  # two tokens a pass, drafts at the price of a pass
