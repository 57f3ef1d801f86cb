"""What crosses the wall is a plain value, whatever wrote it."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualgate.sandbox.inside.values import MAX_DEPTH, NotPlain, decode, encode

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**50), 10**50), st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False), st.text(), st.binary(),
)  # fmt: skip
hashable = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6)
values = st.recursive(
    hashable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(hashable, inner, max_size=4) | st.tuples(inner)
    | st.sets(hashable, max_size=3) | st.lists(inner, max_size=3).map(deque) | st.binary().map(bytearray),
    max_leaves=12,
)  # fmt: skip


def refused(*_: object) -> list:
    raise AssertionError("a plain value was called opaque")


def shape(value: object) -> object:
    """Types all the way down, which == does not see (1, 1.0 and True are equal)."""
    if isinstance(value, (list, tuple, deque)):
        return type(value), [shape(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(item)) for key, item in value.items()]
    return type(value)


@settings(max_examples=150, deadline=None)
@given(values)
def test_a_plain_value_comes_back_equal_and_of_the_same_types(value):
    back = decode(json.loads(json.dumps(encode(value, refused))), refused)
    assert back == value
    assert shape(back) == shape(value)


@pytest.mark.parametrize(
    "x",
    [math.inf, -math.inf, -0.0, 5e-324, 10**5000, -(2**53), 2**53, "\ud800", "a\0b"],
    ids=lambda x: type(x).__name__,
)
def test_awkward_scalars_cross(x):
    back = decode(json.loads(json.dumps(encode(x, refused))), refused)
    assert back == x
    assert math.copysign(1, back) == math.copysign(1, x) if isinstance(x, float) else True


def test_not_a_number_stays_one():
    assert math.isnan(decode(encode(math.nan, refused), refused))


def test_subclasses_that_keep_the_builtin_equality_cross_as_plain_values():
    point = namedtuple("Point", "x y")(1, 2)
    counts = defaultdict(int, a=1)
    number = IntEnum("Number", "one two").two
    for x, plain in ((point, (1, 2)), (counts, {"a": 1}), (number, 2), (Counter("aab"), {"a": 2, "b": 1}),
                     (OrderedDict(b=1, a=2), {"b": 1, "a": 2})):  # fmt: skip
        back = decode(encode(x, refused), refused)
        assert back == plain
        assert type(back) is type(plain)


@pytest.mark.parametrize("base", [int, float, complex, str, bytes, list, tuple, set, frozenset, dict])
def test_a_subclass_with_an_equality_of_its_own_is_opaque(base):
    yes = type("Yes", (base,), {"__eq__": lambda self, other: True, "__hash__": lambda self: 0})
    assert encode([yes()], lambda x: ["o", 0, type(x).__name__]) == ["l", ["o", 0, "Yes"]]


@pytest.mark.parametrize(
    "form",
    [1.5, 2**53, ["i", "1g"], ["i", 5], ["f", "one"], ["l", ["nothing"]], ["d", [1]], ["d", [["l"], 1]], ["s", ["l"]],
     ["o", -1, "x"], ["o", True, "x"], ["T", "eval"], {"a": 1}, [], [[]], ["b", "0"]],
)  # fmt: skip
def test_a_form_that_no_value_has_is_refused(form):
    with pytest.raises(NotPlain):
        decode(form, lambda number, name: None)


def test_depth_size_and_colliding_hashes_are_capped():
    deep: list = []
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    loop: list = []
    loop.append(loop)
    for value in (deep, loop, [0] * 600_000):
        with pytest.raises(NotPlain):
            encode(value, refused)
    modulus = 2**61 - 1  # of Python's hash of ints
    collisions = ["s", *[["i", format(n * modulus, "x")] for n in range(1, 500)]]
    with pytest.raises(NotPlain, match="one hash"):
        decode(collisions, refused)
    assert len(decode(["s", *range(5000)], refused)) == 5000
