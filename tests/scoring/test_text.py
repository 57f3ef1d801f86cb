from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring.text import NORMALIZERS, normalize
from tests.scoring.cases import table


@pytest.mark.parametrize(("name", "text", "expected"), table("normalizers"))
def test_each_normalizer_does_what_it_is_named_for(name, text, expected):
    assert normalize(text, [name]) == expected


def test_normalizers_are_applied_in_the_order_given():
    assert normalize(" A. ", ["strip", "strip_final_period", "casefold"]) == "a"
    assert normalize(" A. ", ["strip_final_period", "strip", "casefold"]) == "a."


def test_no_normalizer_changes_nothing():
    assert normalize(" A\u0301 ", []) == " A\u0301 "


def test_a_tower_of_combining_marks_is_left_as_it_stands_at_once():
    tower = "a" + "\u0301\u0316" * 400_000  # sorting these costs minutes
    start = time.process_time()
    assert normalize(tower, ["nfc", "nfkc"]) == tower
    assert time.process_time() - start < 10


@given(st.text(st.characters()), st.lists(st.sampled_from(sorted(NORMALIZERS))))
def test_normalizing_never_fails(text, names):
    assert isinstance(normalize(text, names), str)


def test_an_unknown_normalizer_is_a_fault_of_the_program():
    with pytest.raises(KeyError):
        normalize("a", ["unheard_of"])
