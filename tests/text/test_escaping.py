"""What could hide, move or fake something on a screen is shown as an escape; what people write stays as it is."""

from __future__ import annotations

import unicodedata

import pytest

from qualgate.text.escaping import visible, visible_line

# Of the format characters those that are drawn, before or above the digits that they belong to.
DRAWN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
# Unicode's Default_Ignorable_Code_Point that are of other categories, and Braille's empty cell.
IGNORED = {
    0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000),
}  # fmt: skip


def test_every_character_that_nobody_sees_is_made_visible() -> None:
    formats = {code for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    nothing = {code for code in range(0x110000) if code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF}
    for code in sorted(formats - DRAWN - {0x9, 0xA} | IGNORED | nothing):
        shown = visible(f"a{chr(code)}b")
        assert shown in (f"a\\u{code:04x}b", f"a\\U{code:08x}b"), f"U+{code:04X}"
        assert visible(shown) == shown


@pytest.mark.parametrize(
    "text",
    ["naïve café", "x^2 + y_1 ≥ −3 €", "漢字かな交じり文", "한국어 문장", "नमस्ते", "שלום עולם", "مرحبا ١٢٣",
     "❤️ ☎︎ 1️⃣ ✌🏽 🙂", "a\tb\n  c", "std::vector<int>"],
)  # fmt: skip
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_selector_of_variants_that_varies_nothing_is_no_hiding_place() -> None:
    assert visible("a\ufe0fb❤\ufe0f\ufe0e") == "a\\ufe0fb❤\ufe0f\\ufe0e"


def test_a_line_is_one_line() -> None:
    assert visible_line(" a\r\n\x0b\u2028b\u3000\x85c ") == "a b c"
