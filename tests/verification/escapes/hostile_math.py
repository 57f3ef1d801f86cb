r"""Expressions that are meant to exhaust or to mislead whoever reads them, as answers to the scorer `math`.

Bombs are templates with a size; each is said in a way that a model might say it, mutated at times, against a reference
that none of them equals. A hang is more than `HANG` seconds on the clock; what a machine with other work adds is why it
is not less.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from qualgate.scoring.mathematics import score_math

HANG = 5.0
REFERENCES = (r"\frac{7919\sqrt{17}}{104729}", r"\sqrt{x^2+7919}-y", "x > 7919", r"\{7919, \sqrt{104729}\}",
              r"\begin{pmatrix}7919\\1\end{pmatrix}", "(7919, 104729]")  # fmt: skip
SAYINGS = ("X", "$X$", r"\boxed{X}", "The answer is X.", r"\[X\]", "x = X", r"\boxed{\frac{X}{X}}", r"\boxed{X, X}")

_BOMBS = Path(__file__).parent / "programs" / "bombs.yaml"
REPEATED = re.compile("⟦(.*?)⟧", re.DOTALL)
TEMPLATES: list[str] = yaml.safe_load(_BOMBS.read_text(encoding="utf-8"))


def _bomb(template: str, size: int) -> str:
    return REPEATED.sub(lambda found: found[1] * size, template.replace("N", str(size)))


BOMBS: tuple[Callable[[int], str], ...] = (  # by a size between 1 and 2,000
    *(partial(_bomb, template) for template in TEMPLATES),
    lambda n: "9" * (n * 500),
    lambda n: ",".join(rf"\sqrt{{{k}}}" for k in range(2, 2 + n)),
    lambda n: r"\{" + ",".join(map(str, range(n))) + r"\}",
)


@dataclass(slots=True)
class Found:
    """What became of them."""

    hangs: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)  # by error type
    slowest: float = 0.0  # seconds

    def as_row(self) -> dict[str, Any]:
        return {"hangs": self.hangs, "crashes": self.crashes, "right": self.right, "said": dict(self.said),
                "slowest": self.slowest}  # fmt: skip


def made(count: int, seed: int) -> list[tuple[str, str]]:
    """`count` answers, each with its reference."""
    draw, found = random.Random(seed), []
    for number in range(count):
        size = draw.choice((1, 2, 3, 10, 30, 100, 400, 2_000))
        bomb = BOMBS[number % len(BOMBS)](draw.randint(max(1, size // 2), size))
        said = draw.choice(SAYINGS).replace("X", bomb)
        if draw.random() < 0.4:
            for _ in range(draw.randint(1, 3)):
                place = draw.randrange(len(said) + 1)
                said = (
                    said[:place] + draw.choice(("", "\\", "{", "}", "^", "(", "9", "$", "-", ",")) + said[place + 1 :]
                )
        found.append((said, draw.choice(REFERENCES)))
    return found


def hostile(count: int, seed: int) -> Found:
    """Score them all; the child that compares is up before."""
    found = Found()
    score_math({"answer": r"\sqrt{2}"}, r"\sqrt{3}")
    for said, reference in made(count, seed):
        start = time.monotonic()
        try:
            score = score_math({"answer": reference}, said)["math"]
        except Exception as error:
            found.crashes.append(f"{type(error).__name__}: {error!s:.100} {said!r:.200}")
            continue
        taken = time.monotonic() - start
        found.slowest = max(found.slowest, taken)
        found.said[score.error_type or "right"] += 1
        if taken > HANG:
            found.hangs.append(f"{taken:.1f} s: {said!r:.200} against {reference}")
        if score.verdict:
            found.right.append(f"{said!r:.200} against {reference}")
    return found
