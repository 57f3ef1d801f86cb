"""SGLang's part of the row `dialects`, and readers with a fault, which it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate.scoring.tools.served import SERVERS, read_served
from tests.verification.references.dialect_strings import TOOLS, kept
from tests.verification.references.sglang_agreement import compared, table
from tests.verification.references.sglang_strings import ONE_LINE, PARSERS, asked
from tests.verification.references.test_dialect_agreement import WRONG

VERSION, ROWS = asked()
DOCS = Path(__file__).parents[3] / "docs" / "dialects.md"


def test_every_string_is_read_as_sglang_reads_it():
    found = compared(ROWS)
    assert found.unexplained == []
    assert found.holds
    assert {*found.strings} >= {one.dialect for one in kept()[1] if one.dialect in PARSERS}
    assert {name: found.served[name] for name in SERVERS["sglang"].parsers if name in found.strings} == {
        name: count for name, count in found.strings.items() if name in SERVERS["sglang"].parsers
    }
    assert "\n".join(table(found)) in DOCS.read_text(encoding="utf-8"), "python -m …sglang_agreement prints it"


@pytest.mark.parametrize("what", WRONG)
def test_a_reader_with_a_fault_is_found(what):
    def wrong(text, name):
        return WRONG[what](read_served(text, name, TOOLS, SERVERS["sglang"]))

    assert compared(ROWS, wrong).unexplained


def test_the_server_is_the_one_that_was_asked():
    assert SERVERS["sglang"].name == f"SGLang {VERSION}"
    assert any(row.one.how == ONE_LINE for row in ROWS)
