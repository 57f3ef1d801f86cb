"""A case's constraint is checked before anything runs: its form, its size, and whether the library takes it."""

from __future__ import annotations

import pytest

from qualgate.scoring import constraint
from qualgate.scoring.constraint import MOST_BYTES, constraint_fault, grammar_of, library
from tests.scoring.cases import table
from tests.tables import each_row


@pytest.mark.parametrize(
    "sound",
    [
        {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}, {"regex": r"\d{1,3}(,\d{3})*"},
        {"grammar": 'start: "a" b\nb: /x+/'}, {"json_schema": {}},
    ],
)  # fmt: skip
def test_what_the_library_reads_has_no_fault(sound):
    assert constraint_fault(sound) == ""
    assert grammar_of(sound)


TOO_LONG = ({"regex": "a" * (MOST_BYTES + 1)}, "at most 65,536 are read")
SURROGATE = ({"regex": "\ud800"}, "half a character")


@each_row(("wrong", "said"), [*table("constraints"), TOO_LONG, SURROGATE])
def test_what_it_does_not_is_a_fault_in_words(wrong, said):
    found = constraint_fault(wrong)
    assert found.startswith("`constraint")
    assert said in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "hostile",
    [
        {"regex": "(" * 5000 + "a" + ")" * 5000}, {"grammar": "start: " + "(" * 20000 + '"a"' + ")" * 20000},
        {"regex": "((((a{1000}){1000}){1000}){1000}){1000}"},
        pytest.param(
            {"json_schema": {"allOf": [{"anyOf": [{"type": "string", "pattern": f"^.*{n}.*$"}]} for n in range(400)]}},
            marks=pytest.mark.proof,
        ),
    ],
    ids=["deep regex", "deep grammar", "repeats of repeats", "patterns that are all to hold"],
)  # fmt: skip
def test_hostile_constraints_end_within_bounds(hostile):
    """Whether it is refused or compiles: the process that asks goes on."""
    found = constraint_fault(hostile)
    assert found == "" or found.startswith("`constraint")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    assert "pip install llguidance" in constraint._in_child('{"regex":"a"}')


def test_the_library_and_its_version_are_what_a_run_is_known_by():
    assert library().startswith("llguidance 1.")
