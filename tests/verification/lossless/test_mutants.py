"""What is right is no mutant, and what is out of date is said to be."""

from __future__ import annotations

import pytest

from qualgate.engine import constraint
from qualgate.speculation import accept, cascade, chance, rules
from tests.verification.lossless.code_mutants import (
    AT_ONCE,
    BY_ROUNDS,
    NUMBERS,
    draft_blocks_of,
    mask_of,
    numbers_mutants,
)
from tests.verification.lossless.drafting import Level
from tests.verification.lossless.known_mutants import KNOWN, by_cascade, by_rule
from tests.verification.lossless.mutants import Found, Mutant, judged, of_model
from tests.verification.lossless.numbers import told_otherwise
from tests.verification.lossless.rewritten import rewritten


def test_a_line_that_is_rewritten_as_it_was_is_not_found():
    for made in (
        by_rule("    return p / q", "    return p / q"),
        by_cascade("if RULES[rule] not in", "if RULES[rule] not in"),
    ):
        found = judged(Mutant(name="none", made=made), 2)
        assert found.total_variation < 1e-14
        assert not found.refused
        assert not found.killed
    at_once = Mutant(
        name="none",
        made=lambda family: of_model(family, rules.block_verification, Level(family.drafts[0])),
        at_once=True,
    )
    assert not judged(at_once, 2).killed
    same = "del row.kept[min(agreed(row.kept, row.text), len(row.text) - 1) :]"
    assert not judged(Mutant(name="none", made=draft_blocks_of(same, same), at_once=True, length=4), 2).killed
    mask = rewritten(constraint, "if same < len(self._read)", "if same < len(self._read)").GrammarMask
    assert not judged(Mutant(name="none", made=mask_of(mask), at_once=True), 2).killed
    assert told_otherwise(rewritten(chance, "self._drawn += 1", "self._drawn += 1")) == ""


@pytest.mark.parametrize("name", ["M1", "M4", "M7", "M10"])
def test_known_mutants_are_found_by_other_models_too(name: str):
    found = judged(KNOWN[name], 2)
    assert found.total_variation > 0.01
    assert found.answers is not None
    assert found.answers < 1e5


@pytest.mark.parametrize("name", ["stale draft cache", "mask not rewound"])
def test_what_is_left_behind_a_rejected_draft_is_found_by_other_models_too(name: str):
    [mutant] = [one for one in AT_ONCE if one.name.startswith(name)]
    assert judged(mutant, 2).killed


def test_what_is_refused_is_found_without_a_law():
    assert Found(name="x", refused="because").killed
    assert Found(name="x", total_variation=2e-12).killed
    assert not Found(name="x", total_variation=1e-12).killed


def test_there_are_eleven_and_more_than_ten():
    assert list(KNOWN) == [f"M{number}" for number in range(1, 12)]
    names = [one.name for one in (*KNOWN.values(), *BY_ROUNDS, *AT_ONCE)] + list(NUMBERS)
    assert len(set(names)) == len(names) >= 21


def test_every_mutant_of_the_numbers_is_found():
    found = numbers_mutants()
    assert found.keys() == NUMBERS.keys()
    assert all(found.values())


def test_a_mutant_of_a_line_that_is_not_there_is_out_of_date():
    with pytest.raises(LookupError, match="stands there 0 times"):
        rewritten(accept, "no such line", "")
    with pytest.raises(LookupError, match=r"stands there \d+ times"):
        rewritten(rules, "target", "")


def test_the_module_that_runs_is_left_as_it_is():
    before = cascade.drafted
    assert rewritten(cascade, "if RULES[rule] not in", "if RULES[rule] in").drafted is not before
    assert cascade.drafted is before
