r"""Expressions that are meant to exhaust or to mislead whoever reads them, as answers to the scorer `math`.

Bombs are templates with a size; each is said in a way that a model might say it, mutated at times, against a reference
that none of them equals. A hang is more than `HANG` seconds on the clock; what a machine with other work adds is why it
is not less.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qualgate.scoring.mathematics import score_math

HANG = 5.0
REFERENCES = (r"\frac{7919\sqrt{17}}{104729}", r"\sqrt{x^2+7919}-y", "x > 7919", r"\{7919, \sqrt{104729}\}",
              r"\begin{pmatrix}7919\\1\end{pmatrix}", "(7919, 104729]")  # fmt: skip
SAYINGS = ("X", "$X$", r"\boxed{X}", "The answer is X.", r"\[X\]", "x = X", r"\boxed{\frac{X}{X}}", r"\boxed{X, X}")

# By the size n, which is drawn between 1 and 2,000.
BOMBS: tuple[Callable[[int], str], ...] = (
    lambda n: "9^{" * n + "9" + "}" * n,
    lambda n: "9" * (n * 500),
    lambda n: "{" * n + "1" + "}" * n,
    lambda n: "(" * n + "1" + ")" * n,
    lambda n: "(" * n,
    lambda n: "}" * n,
    lambda n: r"\frac{1}{" * n + "2" + "}" * n,
    lambda n: rf"{n * 1000}!",
    lambda n: "9" + "!" * n,
    lambda n: "5" + r"\%" * n,
    lambda n: "x" + "^x" * n,
    lambda n: "1" + "/2" * n,
    lambda n: "-" * n + "1",
    lambda n: "2" + r"\cdot 2" * n,
    lambda n: "+".join(["x^{99}"] * n),
    lambda n: r"\sqrt{" * n + "2" + "}" * n,
    lambda n: r"\sin " * n + "x",
    lambda n: "|" * n + "x" + "|" * n,
    lambda n: rf"\binom{{{n}000}}{{{n}00}}",
    lambda n: rf"(1+x)^{{{n}}}",
    lambda n: rf"10^{{10^{{{n}}}}}",
    lambda n: rf"\sin(10^{{{n}}})",
    lambda n: rf"e^{{{n}x^{{{n}}}}}",
    lambda n: rf"\gcd(10^{{{n}}},6)",
    lambda n: f"1e{n}",
    lambda n: ",".join(rf"\sqrt{{{k}}}" for k in range(2, 2 + n)),
    lambda n: r"\{" + ",".join(map(str, range(n))) + r"\}",
    lambda n: r"1\pm " * n + "2",
    lambda n: r"(1,2)\cup" * n + "(1,2)",
    lambda n: r"\begin{pmatrix}" + "1&" * n + r"1\end{pmatrix}",
    lambda n: r"\begin{matrix}" * n,
    lambda n: "x<" * n + "y",
    lambda n: "x=" * n + "y",
    lambda n: "x_" * n + "1",
    lambda n: r"\boxed{" * n,
    lambda n: r"\boxed{1}" * n,
    lambda n: "$" * n,
    lambda n: "the answer is " * n,
    lambda n: r"\text{" * n,
    lambda n: r"\left(" * n,
    lambda n: "\u0661" * n,
    lambda n: "\uff11" * n,
    lambda n: "a\u0301" * n,
    lambda n: "\x00\ud800" * n,
    lambda n: r"\input{/etc/passwd}" * n,
    lambda n: r"\def\a{\a\a}\a" * n,
    lambda n: "__import__('os').system('id')" * n,
    lambda n: "lambda: exec('x')" * n,
    lambda n: rf"\frac{{1}}{{{n}-{n}}}",
    lambda n: r"\infty-" * n + r"\infty",
    lambda n: rf"\log_{{1}}({n})",
    lambda n: rf"{n}.\overline{{{'9' * 39}}}",
    lambda n: "Final Answer: The final answer is " * n,
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
