"""Word and list transformations: one instruction, one list, the transformed list."""

# ruff: noqa: E501  one template a line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

Items = list[str]


def _length(level: float) -> int:
    return 3 + round(6 * level)


def with_repeats(values: Values, level: float) -> Items:
    """A list in which at least one word comes twice."""
    items = values.words(max(2, _length(level) - 2))
    return sorted(items + values.rng.choices(items, k=2), key=lambda _: values.rng.random())


def whole(wording: str, change: Callable[[Items], Items], separator: str = ", ") -> Callable[..., tuple[str, str]]:
    """A change of the whole list that needs nothing but the list."""

    def make(values: Values, level: float) -> tuple[str, str]:
        items = values.words(_length(level))
        return f"{wording}: {', '.join(items)}", separator.join(change(items))

    return make


def each(wording: str, change: Callable[[str], str]) -> Callable[..., tuple[str, str]]:
    """A change of every word by itself."""
    return whole(wording, lambda items: [change(item) for item in items])


def numbers(wording: str, change: Callable[[list[int]], list[int]]) -> Callable[..., tuple[str, str]]:
    """A change of a list of three-digit numbers."""

    def make(values: Values, level: float) -> tuple[str, str]:
        items = values.integers(_length(level), 100, 999)
        return f"{wording}: {', '.join(map(str, items))}", ", ".join(map(str, change(items)))

    return make


def repeated(wording: str, change: Callable[[Items], Items]) -> Callable[..., tuple[str, str]]:
    """A change of a list in which words come twice."""

    def make(values: Values, level: float) -> tuple[str, str]:
        items = with_repeats(values, level)
        return f"{wording}: {', '.join(items)}", ", ".join(change(items))

    return make


def with_word(wording: str, change: Callable[[Items, str], Items]) -> Callable[..., tuple[str, str]]:
    """A change that brings a new word @ with it."""

    def make(values: Values, level: float) -> tuple[str, str]:
        *items, word = values.words(_length(level) + 1)
        return f"{wording.replace('@', word)}: {', '.join(items)}", ", ".join(change(items, word))

    return make


def with_member(wording: str, change: Callable[[Items, int], Items]) -> Callable[..., tuple[str, str]]:
    """A change around one word @ of the list, given to `change` as its place."""

    def make(values: Values, level: float) -> tuple[str, str]:
        items = values.words(_length(level))
        place = values.rng.randrange(len(items))
        return f"{wording.replace('@', items[place])}: {', '.join(items)}", ", ".join(change(items, place))

    return make


def _replace_member(values: Values, level: float) -> tuple[str, str]:
    *items, new = values.words(_length(level) + 1)
    old = values.rng.choice(items)
    return f"Replace {old} by {new}: {', '.join(items)}", ", ".join(new if item == old else item for item in items)


def two_lists(wording: str, change: Callable[[Items, Items], Items]) -> Callable[..., tuple[str, str]]:
    """A change that makes one list of two of equal length."""

    def make(values: Values, level: float) -> tuple[str, str]:
        count = 2 + round(3 * level)
        items = values.words(2 * count)
        left, right = items[:count], items[count:]
        return f"{wording}: {', '.join(left)} / {', '.join(right)}", ", ".join(change(left, right))

    return make


def _without_repeats(items: Items) -> Items:
    return list(dict.fromkeys(items))


def _swapped_ends(items: Items) -> Items:
    return [items[-1], *items[1:-1], items[0]]


MAKERS = (
    whole("Reverse the list", lambda items: items[::-1]),
    whole("Sort from a to z", sorted),
    whole("Drop the first word", lambda items: items[1:]),
    whole("Drop the last word", lambda items: items[:-1]),
    whole("Keep the first two words", lambda items: items[:2]),
    whole("Keep the last two words", lambda items: items[-2:]),
    whole("Keep every second word", lambda items: items[::2]),
    whole("Swap the first and last word", _swapped_ends),
    whole("Move the first word to the end", lambda items: [*items[1:], items[0]]),
    whole("Move the last word to the front", lambda items: [items[-1], *items[:-1]]),
    whole("Say each word twice", lambda items: [item for item in items for _ in range(2)]),
    whole("Join with dashes", list, "-"),
    whole("Join with semicolons", list, "; "),
    whole("Number the words", lambda items: [f"{place}. {item}" for place, item in enumerate(items, start=1)]),
    whole("Which is first from a to z", lambda items: [min(items)]),
    whole("Write the first letters", lambda items: ["".join(item[0] for item in items)]),
    each("Write in capitals", str.upper),
    each("Capitalize each word", str.capitalize),
    each("Quote each word", lambda item: f'"{item}"'),
    each("Spell each word's first two letters", lambda item: item[:2]),
    numbers("Sort upwards", sorted),
    numbers("Sort downwards", lambda items: sorted(items, reverse=True)),
    numbers("Largest number", lambda items: [max(items)]),
    numbers("Smallest number", lambda items: [min(items)]),
    repeated("Remove repeated words", _without_repeats),
    repeated("Which words come more than once", lambda items: [w for w in _without_repeats(items) if items.count(w) > 1]),
    with_word("Put @ in front", lambda items, word: [word, *items]),
    with_word("Add @ to the end", lambda items, word: [*items, word]),
    with_word("Put @ in second place", lambda items, word: [items[0], word, *items[1:]]),
    with_word("Put @ after each word", lambda items, word: [both for item in items for both in (item, word)]),
    with_member("Remove @", lambda items, place: items[:place] + items[place + 1 :]),
    with_member("Keep what follows @, or say none", lambda items, place: items[place + 1 :] or ["none"]),
    with_member("Keep what precedes @, or say none", lambda items, place: items[:place] or ["none"]),
    with_member("Write @ in capitals", lambda items, place: [*items[:place], items[place].upper(), *items[place + 1 :]]),
    _replace_member,
    two_lists("Pair the lists", lambda left, right: [f"{a}={b}" for a, b in zip(left, right, strict=True)]),
    two_lists("Take turns between the lists", lambda left, right: [w for pair in zip(left, right, strict=True) for w in pair]),
    two_lists("Swap the two lists", lambda left, right: [*right, *left]),
)  # fmt: skip
TEMPLATES = {f"list-{number:02}": make for number, make in enumerate(MAKERS, start=1)}


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """The level sets how long the list is: three items to nine."""
    question, answer = TEMPLATES[template](values, level)
    return {"task": "transform", "messages": user(question), "answer": answer, "tags": [f"template:{template}"]}
