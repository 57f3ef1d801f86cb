from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.errors import UsageError
from qualgate.scoring import text
from qualgate.scoring.match import score_exact_match
from qualgate.scoring.text import NORMALIZERS, normalize


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("nfc", "e\u0301", "\u00e9"),
        ("nfc", "\ufb01", "\ufb01"),
        ("nfkc", "\uff11\ufb01", "1fi"),
        ("casefold", "Straße", "strasse"),
        ("strip", " \n a \t", "a"),
        ("collapse_whitespace", "a \n\t b\u00a0c", "a b c"),
        ("strip_punctuation", "Hi, (you)! «ok» 3.5", "Hi you ok 35"),
        ("strip_invisible", "a\u200bb\u202ec\ufeff", "abc"),
        ("strip_final_period", "yes.", "yes"),
        ("strip_final_period", "yes.\n", "yes.\n"),
    ],
)
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


PLUGIN = """
def digits_only(text):
    return "".join(c for c in text if c.isdigit())

def broken(text):
    return 5

def raising(text):
    return 1 / 0
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A third party's package with three entry points, as pip would lay it out."""
    (tmp_path / "their_text.py").write_text(PLUGIN)
    facts = tmp_path / "their_text-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their_text\nVersion: 1\n")
    names = "".join(f"{name} = their_text:{name}\n" for name in ("digits_only", "broken", "raising", "gone"))
    (facts / "entry_points.txt").write_text(f"[qualgate.normalizers]\n{names}")
    monkeypatch.syspath_prepend(str(tmp_path))
    text._declared.cache_clear()
    text._named.cache_clear()
    yield
    text._declared.cache_clear()
    text._named.cache_clear()


def test_a_third_party_adds_a_normalizer_by_entry_point(installed):
    assert {"digits_only", "broken", "gone", "strip"} <= set(text.known())
    assert normalize("a1 b2", ["digits_only"]) == "12"
    with pytest.raises(text.NormalizerFault, match="gave int"):
        normalize("a", ["broken"])
    with pytest.raises(text.NormalizerFault, match=r"the package their_text 1, which offers 'gone'.*cannot be used"):
        normalize("a", ["gone"])
    with pytest.raises(text.NormalizerFault, match="raised ZeroDivisionError"):
        normalize("a", ["raising"])
    found = score_exact_match({"answer": "b"}, "a", ["raising"])["exact_match"]
    assert (found.verdict, found.error_type) == (None, "normalizer")
    with pytest.raises(KeyError):
        normalize("a", ["unheard_of"])


def test_a_shipped_normalizer_cannot_be_replaced(installed, tmp_path):
    facts = tmp_path / "their_text-1.dist-info" / "entry_points.txt"
    facts.write_text("[qualgate.normalizers]\nnfc = their_text:digits_only\n")
    with pytest.raises(UsageError, match=r"their_text 1 offers 'nfc'.*cannot be replaced"):
        text.known()
    assert normalize("e\u0301", ["nfc"]) == "é"
