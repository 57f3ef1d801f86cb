"""The values that fill a template, split by hash so that no value of an eval case was ever seen in training.

A value is a word, a name, an id, a number of three digits or more, or a whole operand pair. Its SHA-256 decides its
side: one bucket in five belongs to eval. Closed vocabulary (field names, units, colours, one- and two-digit counts)
is part of the templates, not a value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Literal, TypeVar

Split = Literal["train", "eval"]
T = TypeVar("T")

# Consonant + vowel, each of which becomes one token of the shipped vocabulary.
VOWELS = {
    "b": "aeo", "d": "aeo", "k": "aei", "l": "aeio", "m": "aeio", "n": "aeio",
    "r": "aeio", "s": "aeo", "t": "aeio", "v": "aei", "z": "o",
}  # fmt: skip
SYLLABLES = tuple(consonant + vowel for consonant, vowels in VOWELS.items() for vowel in vowels)
WORDS_OF_TEMPLATES = {"name", "date", "none", "more", "rate"}  # syllables can spell these; a value must not


def split_of(value: object) -> Split:
    """Which side a value belongs to, whatever its letter case: the same for ever, on every machine."""
    return "eval" if sha256(str(value).lower().encode()).digest()[0] % 5 == 0 else "train"


class Values:
    """Draws values of one side; what was drawn is kept in `drawn`, so that a test can hold both sides apart."""

    def __init__(self, rng: random.Random, split: Split):
        self.rng = rng
        self.split = split
        self.drawn: set[str] = set()

    def draw(self, make: Callable[[], T]) -> T:
        """The first of the values `make` returns that lies on this side."""
        while True:
            value = make()
            if split_of(value) == self.split:
                self.drawn.add(str(value).lower())
                return value

    def word(self, syllables: int = 0) -> str:
        """A made-up lower-case word of two or three syllables, such as `tamori`."""
        count = syllables or self.rng.choice((2, 2, 3))
        while True:
            word = self.draw(lambda: "".join(self.rng.choice(SYLLABLES) for _ in range(count)))
            if word not in WORDS_OF_TEMPLATES:
                return word

    def words(self, count: int) -> list[str]:
        """`count` different words."""
        return self.distinct(self.word, count)

    def name(self) -> str:
        """A made-up proper name, such as `Tamori`."""
        return self.word().capitalize()

    def names(self, count: int, beyond: Sequence[str] = ()) -> list[str]:
        """`count` different names, none of them in `beyond`."""
        return self.distinct(self.name, count, beyond)

    def integer(self, low: int, high: int) -> int:
        """An integer in low..high; below 100 it is closed vocabulary, above it a value of one side."""
        if high < 100:
            return self.rng.randint(low, high)
        return self.draw(lambda: self.rng.randint(low, high))

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """`count` different integers in low..high."""
        return self.distinct(lambda: self.integer(low, high), count)

    def operands(self, *ranges: tuple[int, int]) -> tuple[int, ...]:
        """Numbers that belong together, such as (347, 586): all of them, in any order, are the value."""
        while True:
            numbers = tuple(self.rng.randint(low, high) for low, high in ranges)
            if split_of(sorted(numbers)) == self.split:
                self.drawn.add(str(sorted(numbers)))
                return numbers

    def code(self) -> str:
        """An id such as `K482`."""
        return self.draw(lambda: self.rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") + str(self.rng.randint(100, 999)))

    def price(self) -> str:
        """A decimal such as `48.50`."""
        return self.draw(lambda: f"{self.rng.randint(2, 99)}.{self.rng.choice((25, 40, 50, 75, 80, 95))}")

    def date(self) -> str:
        """An ISO date of the years 2020 to 2039."""
        rng = self.rng
        return self.draw(lambda: f"20{rng.randint(20, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}")

    @staticmethod
    def distinct(draw: Callable[[], T], count: int, beyond: Sequence[T] = ()) -> list[T]:
        """`count` different values that `draw` gives, none of them in `beyond`; it must be able to give so many."""
        values: list[T] = []
        while len(values) < count:
            value = draw()
            if value not in values and value not in beyond:
                values.append(value)
        return values
