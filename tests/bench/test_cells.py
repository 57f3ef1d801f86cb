from __future__ import annotations

import math

from qualgate import refmodel
from qualgate.bench import cells, ours
from qualgate.bench.cells import AUTO, Cell
from qualgate.bench.questions import asked_of
from qualgate.bench.speculating import Level, Told, drafted
from qualgate.bench.speedup import Accepted, PassTimes


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


def test_cells_are_measured_on_answers_that_are_the_same(tmp_path):
    plain, packed = (ours.load(str(recipe), refmodel.PATH, tmp_path, recipe) for recipe in (None, "mxfp4"))
    prompts = asked_of({"code": ("code",)}, 2)
    ways = {
        (by, tokens): drafted(plain, Level(by=packed if by == "mxfp4" else "ngram", tokens=tokens))
        for by in ("mxfp4", "ngram")
        for tokens in (2, AUTO)
    }
    fate = cells.fates({way: arm for way, arm in ways.items() if way[1] != AUTO}, prompts, (1, 2))
    assert len(fate[("mxfp4", 2), "code", 2]) == 2
    assert all(one.drafted > 0.9 and one.chances[0] > 0.9 for one in fate[("mxfp4", 2), "code", 2])
    asked, clocked = [], []

    def passes(of):
        asked.append(of)
        places = [(made, count, tokens) for made in (False, True) for count in of for tokens in range(made, 3)]
        return {place: lambda place=place: clocked.append(place) or 1.0 for place in places}

    found, turns = cells.measure({cells.PLAIN: plain} | ways, prompts, (1, 2), fate, passes, 3)
    assert asked == [[1], [1, 2]], "passes of more sequences than share one tell nothing"
    assert len(turns) == 6
    assert clocked.count((False, 1, 0)) == 6, "passes are measured in every turn"
    assert clocked[:5] != clocked[5:10], "in another order"
    assert [(one.by, one.tokens, one.batch) for one in found] == [(*way, batch) for batch in (1, 2) for way in ways]
    assert not any(one.unlike for one in found)
    assert all(one.gain > 0 and (one.foretold is None) == (one.tokens == AUTO) for one in found)
    own = next(one for one in found if (one.by, one.tokens, one.batch) == ("mxfp4", 2, 1))
    assert own.foretold is not None
    assert 2.5 < own.foretold <= 3  # passes cost nothing more, drafts nothing, and nearly all is accepted


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
