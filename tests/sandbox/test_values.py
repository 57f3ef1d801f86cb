"""What crosses the wall is a plain value, whatever wrote it."""

from __future__ import annotations

import json
import math
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.sandbox.inside.values import MAX_DEPTH, NotPlain, decode, encode, plain
from tests.depth import examples

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


@examples(150)
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
    assert math.isnan(decode(encode(math.nan, refused), refused))


def test_subclasses_that_keep_the_builtin_equality_cross_as_plain_values():
    point = namedtuple("Point", "x y")(1, 2)
    number = IntEnum("Number", "one two").two
    price = type("Price", (Decimal,), {})("1.50")
    for x, below in ((point, (1, 2)), (number, 2), (price, Decimal("1.50")), ({point}, {(1, 2)})):
        back = decode(encode(x, refused), refused)
        assert back == below == plain(x)
        assert type(back) is type(below)


standard = st.one_of(
    st.decimals(allow_nan=False), st.fractions(), st.dates(), st.times(), st.datetimes(), st.timedeltas(), st.uuids(),
    st.datetimes(timezones=st.timezones(), allow_imaginary=False), st.times(timezones=st.just(UTC)),
    st.ip_addresses(), st.integers(0, 900).map(range), st.integers(0, 9).map(lambda n: array("q", range(n))),
    st.dictionaries(st.text(), st.integers()).flatmap(lambda d: st.sampled_from(
        [OrderedDict(d), Counter(d), defaultdict(int, d), UserDict(d), ChainMap(d), MappingProxyType(d), d.keys(),
         d.items(), OrderedDict(d).keys(), deque(d, 5), UserList(d), SimpleNamespace(held=d)])),
    st.sampled_from([..., NotImplemented, PurePosixPath("a/b"), UserString("x"), memoryview(b"xy"), slice(1, None, 2),
                     Decimal, ValueError, OrderedDict, datetime, range]),
)  # fmt: skip


@examples(150)
@given(standard)
def test_a_value_of_the_standard_library_comes_back_as_itself(value):
    back = decode(json.loads(json.dumps(encode([value], refused, True))), refused)[0]
    assert back == value
    assert type(back) is type(value)
    if isinstance(value, (Decimal, OrderedDict)):
        assert repr(back) == repr(value)  # 1.0 and 1.00; the order
    if isinstance(value, datetime):
        assert back.utcoffset() == value.utcoffset()


def test_what_a_class_adds_to_a_constant_stays_with_it_and_what_it_changes_makes_it_an_object():
    point = namedtuple("Point", "x y")(1, 2)
    assert encode([point], lambda x: ["o", 7, "Point"], True) == ["l", ["k", ["t", 1, 2], 7, "Point"]]
    kept = []
    assert decode(["k", ["t", 1, 2], 7, "Point"], refused, lambda *held: kept.append(held)) is None
    assert kept == [((1, 2), 7, "Point")]
    loud = type("Loud", (str,), {"upper": lambda self: "x"})("a")
    counted = namedtuple("Counted", "count")(1)
    for x in (loud, counted, type("Own", (list,), {})([1]), {object()}, {object(): 1}, {(1, object())}):
        assert encode(x, lambda _: ["o", 0, "Own"], True) == ["o", 0, "Own"]


@pytest.mark.parametrize("base", [int, float, complex, str, bytes, list, tuple, set, frozenset, dict])
def test_a_subclass_with_an_equality_of_its_own_is_opaque(base):
    yes = type("Yes", (base,), {"__eq__": lambda self, other: True, "__hash__": lambda self: 0})
    assert encode([yes()], lambda x: ["o", 0, type(x).__name__]) == ["l", ["o", 0, "Yes"]]


@pytest.mark.parametrize(
    "form",
    [1.5, 2**53, ["i", "1g"], ["i", 5], ["f", "one"], ["l", ["nothing"]], ["d", [1]], ["d", [["l"], 1]], ["s", ["l"]],
     ["o", -1, "x"], ["o", True, "x"], ["T", "eval"], {"a": 1}, [], [[]], ["b", "0"], ["T", "os"], ["k", ["l"], 0, "x"],
     ["v"], ["v", "os.system", "ls"], ["v", "decimal.Decimal", "1e999999999"], ["v", "decimal.Decimal", "x"],
     ["v", "decimal.Decimal", "9" * 20_000], ["v", "decimal.Decimal", 5], ["v", "fractions.Fraction", 1, 0],
     ["v", "fractions.Fraction", 1, ["i", "1" * 50_000]], ["v", "range", 0, 10**9, 1], ["v", "range", 0, 1, 0],
     ["v", "range", ["i", "f" * 90], ["i", "f" * 90], 1], ["v", "datetime.date", ["b", "07d00101"]],
     ["v", "datetime.timedelta", 10**10, 0, 0], ["v", "datetime.timezone", 5], ["v", "collections.ChainMap", ["l", 5]],
     ["v", "collections.ChainMap", ["l", *[["d"]] * 200]], ["v", "array.array", "u", ["l", 1]], ["v", "uuid.UUID", -1],
     ["v", "collections.defaultdict", 5, ["d"]], ["v", "dict_keys", ["t", ["l"]]],
     ["v", "SimpleNamespace", ["d", [1, 2]]],
     ["v", "collections.Counter", ["d"], 3], ["s", ["o", 0, "x"]], ["d", [["t", ["o", 0, "x"]], 1]],
     ["v", "dict_keys", ["t", ["o", 0, "x"]]]],
    ids=lambda form: str(form)[:40],
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
    with pytest.raises(NotPlain, match="one hash"):
        decode(["v", "dict_keys", ["t", *collisions[1:]]], refused)
    assert len(decode(["s", *range(5000)], refused)) == 5000
