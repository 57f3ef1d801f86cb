"""The formats in which keys and values may be kept, and what they take. Needs no torch: who counts has no tensors.

float32 and bfloat16 (the nearest, ties to even) are what they say. The others are codes, from which a number comes as

- fp8: e4m3 without infinities, code * the layer's scale, one for keys and one for values; beyond +-448 scales lies 448;
- int8: code * scale, -127 to 127; scale: of the position and head, bfloat16, its largest number / 127 rounded up;
- int4: least + code * scale, 0 to 15; least: of the position and head, bfloat16, its smallest number rounded down;
  scale: bfloat16, (its largest number - least) / 15 rounded up.

Every step is one of float32's, each rounded by itself. What is NaN stays NaN; of int8 and int4 all numbers of a
position and head become NaN (its scale is) where one is not finite, or so large that float32 would not hold the largest
that the codes can say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """dtype: an element's, as torch names it; size: its bytes; packed: the numbers in it; scales: bfloat16 numbers
    beside each position and head, of keys and of values each; kind: the format's number in C."""

    name: str
    dtype: str
    size: int
    packed: int
    scales: int
    kind: int


FORMS = {
    form.name: form
    for form in (
        Form("float32", "float32", 4, 1, 0, 0),
        Form("bfloat16", "bfloat16", 2, 1, 0, 1),
        Form("fp8", "uint8", 1, 1, 0, 2),
        Form("int8", "int8", 1, 1, 1, 3),
        Form("int4", "uint8", 1, 2, 2, 4),
    )
}


def form_of(name: str) -> Form:
    """ValueError for one that is not there."""
    if not isinstance(name, str) or name not in FORMS:
        raise ValueError(f"form: expected one of {', '.join(FORMS)}, got {name!r:.40}")
    return FORMS[name]


def bytes_of_position(form: str, kv_heads: int, head_dim: int) -> int:
    """Return the bytes of the keys, values and scales that one layer keeps of one position. ValueError for another
    form."""
    kept_form = form_of(form)
    return 2 * kv_heads * (head_dim // kept_form.packed * kept_form.size + 2 * kept_form.scales)
