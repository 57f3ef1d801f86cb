"""Mutants parse, change what they say, and are drawn alike from the same seed."""

from __future__ import annotations

import ast

import pytest

from tests.time.costs import Test
from tests.verification.mutation.kills import Copy
from tests.verification.mutation.mutants import ROOT, drawn, of_file

SOURCE = '''
WIDTH = 3


def wide(value: int = 2, *, strict: bool = False) -> str:
    """At least 3."""
    if not strict and value >= WIDTH:
        note(value)
        return f"{value + 1} é" + "x"
    for one in range(value):
        if one is None:
            continue
    return min(value, 4) - 1.5
'''


@pytest.fixture
def changes(tmp_path) -> set[tuple[str, str]]:
    path = tmp_path / "wide.py"
    path.write_text(SOURCE, encoding="utf-8")
    return {(mutant.before, mutant.after) for mutant in of_file(path, tmp_path)}


def test_each_kind_of_change_is_made_and_neither_defaults_nor_shown_text_is_touched(changes):
    assert changes == {
        ("not strict and value >= WIDTH", "((not strict) or (value >= WIDTH))"),
        ("not strict", "(strict)"),
        ("value >= WIDTH", "value > WIDTH"),
        ("note(value)", "pass"),
        ('return f"{value + 1} é" + "x"', "return None"),
        ("one is None", "one is not None"),
        ("continue", "break"),
        ("return min(value, 4) - 1.5", "return None"),
        ("min(value, 4) - 1.5", "((min(value, 4)) + (1.5))"),
        ("4", "5"),
        ("1.5", "3.0"),
    }


def test_every_mutant_drawn_from_the_product_parses_and_differs():
    mutants = drawn(1, 100, ["qualgate/intake"])
    assert mutants == drawn(1, 100, ["qualgate/intake"])
    assert len(set(mutants)) == 100
    for mutant in mutants:
        source = (ROOT / mutant.path).read_bytes()
        assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source)), str(mutant)


@pytest.mark.proof
def test_a_mutant_in_a_copy_is_noticed_there_and_the_checkout_stays_as_it_is(tmp_path):
    checkout = tmp_path / "checkout"
    for name in ("app", "evalsets", "migrations", "kernels", "tests", "qualgate"):
        (checkout / name).mkdir(parents=True)
    (checkout / "qualgate" / "__init__.py").write_text("def wide(value):\n    return value >= 3\n")
    (checkout / "tests" / "test_wide.py").write_text("from qualgate import wide\ndef test_edge(): assert wide(3)\n")
    (checkout / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    [mutant] = [one for one in of_file(checkout / "qualgate" / "__init__.py", checkout) if one.after.endswith("> 3")]
    copy = Copy(checkout, tmp_path / "copy")
    test = Test("tests/test_wide.py::test_edge", 0.1, "passed")
    assert copy.first_failure([test]) is None
    with copy.changed(mutant):
        assert copy.first_failure([test]) == test.name
    assert copy.first_failure([test]) is None
    assert "> 3" not in (checkout / "qualgate" / "__init__.py").read_text().replace(">= 3", "")
