"""The battery itself: its starts are what they are called, its oracle is no rubber stamp, and nothing gets through."""

from __future__ import annotations

import json

import pytest

from tests.verification.verdicts.fail_closed_files import (
    LOST,
    POLICY,
    ROWS,
    exit_of,
    files,
    harmless,
    mutated,
    rows,
    written,
)


def test_what_the_mutations_start_from_approves_and_the_lost_third_blocks(tmp_path):
    assert (exit_of(files(), tmp_path), exit_of(files(LOST), tmp_path)) == (0, 10)


def test_a_slice_of_the_battery_approves_nothing_that_says_something_else(tmp_path):
    drawn = [one for at, one in enumerate(mutated(1)) if at % 3 == 0]
    found = [(name, exit_of(after, tmp_path), harmless(before, after)) for name, before, after in drawn]
    assert [name for name, code, fine in found if code == 0 and not fine] == []
    assert [name for name, code, _ in found if isinstance(code, str)] == []
    assert sum(code != 0 for _, code, _ in found) >= len(found) // 2


def test_every_mutation_is_drawn_and_drawn_again_the_same():
    names = [name.rpartition(", ")[0] or name for name, _, _ in mutated(1)]
    assert {*ROWS, *POLICY} <= set(names)
    assert [after for _, _, after in mutated(1)] == [after for _, _, after in mutated(1)]


@pytest.mark.parametrize(
    ("over", "fine"),
    [
        ({"extracted": "other", "model": "x"}, True),
        ({"finish_reason": "length"}, True),
        ({"value": 0.0}, False),
        ({"verdict": None}, False),
        ({"status": "error"}, False),
        ({"case_hash": "x"}, False),
        ({"tags": []}, False),
    ],
)
def test_the_oracle_tells_what_counts_from_what_does_not(over, fine):
    before, changed = files(), rows("b")
    changed[-1] |= over
    assert harmless(before, before | {"b.jsonl": written(changed)}) == fine
    turned = b"".join(json.dumps(row).encode() + b"\n" for row in reversed(rows("b")))
    assert harmless(before, before | {"b.jsonl": turned})
    assert not harmless(before, before | {"gate.yaml": before["gate.yaml"] + b"# x"})
