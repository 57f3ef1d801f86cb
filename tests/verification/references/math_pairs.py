r"""Final answers in two writings, right and wrong, in 32 kinds: our verdicts beside math-verify's.

Pairs follow from a seed. What math-verify 0.9.0 said of them is kept in `math_verdicts.json`, a bit a pair, with a
digest of the pairs; where `QUALGATE_MATH_VERIFY` names a Python that has it, it is asked again. Forms on which it is
known to err, or to read another way, are left out of the pairs and stand in `BEYOND`, each with what is right.

    QUALGATE_MATH_VERIFY=…/bin/python python -m tests.verification.references.math_pairs     writes the file anew
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from qualgate.scoring.mathematics import score_math
from tests.verification.references.agreement import NoReference, Tally

STORED = Path(__file__).parent / "math_verdicts.json"
INTERPRETER = "QUALGATE_MATH_VERIFY"
PAIRS, SEED = 5_120, 23

Pair = tuple[str, str, str]  # kind, what a model says, the reference
Draw = random.Random


def _signed(draw: Draw, low: int = 1, high: int = 60) -> int:
    return draw.choice((-1, 1)) * draw.randint(low, high)


def _fraction(draw: Draw, value: Fraction) -> str:
    a, b, sign = abs(value.numerator), value.denominator, "-" if value < 0 else ""
    k = draw.randint(2, 5)
    ways = [rf"{sign}\frac{{{a}}}{{{b}}}", rf"{sign}\dfrac{{{a}}}{{{b}}}", rf"\frac{{{sign}{a}}}{{{b}}}",
            f"{sign}{a}/{b}", rf"{sign}\frac{{{a * k}}}{{{b * k}}}", rf"{sign}\tfrac{{{a}}}{{{b}}}"]  # fmt: skip
    if a < 10 and b < 10:
        ways.append(rf"{sign}\frac{a}{b}")
    return draw.choice(ways)


def integers(draw: Draw) -> tuple[str, str]:
    n = _signed(draw, 0, 9_999)
    said = draw.choice((n, n, n + draw.choice((-1, 1, 10)), -n))
    return draw.choice((f"{said}", f"{said}.0", f"{said:,}", rf"{said:,}".replace(",", "{,}"))), f"{n}"


def fractions(draw: Draw) -> tuple[str, str]:
    value = Fraction(_signed(draw), draw.randint(2, 30))
    said = draw.choice((value, value, -value, 1 / value, value + 1))
    return _fraction(draw, said), _fraction(draw, value)


def mixed(draw: Draw) -> tuple[str, str]:
    whole, below = draw.randint(1, 20), draw.randint(2, 12)
    above = draw.randint(1, below - 1)
    value = whole + Fraction(above, below)
    wrong = draw.choice((value, value, value + 1, Fraction(whole * above, below)))
    return rf"{whole}\frac{{{above}}}{{{below}}}", _fraction(draw, wrong)


def decimals(draw: Draw) -> tuple[str, str]:
    value = Fraction(_signed(draw, 1, 400), draw.choice((2, 4, 5, 8, 10, 20, 25, 40, 100)))
    said = draw.choice((value, value, value * 10, value + Fraction(1, 100)))
    return f"{float(said):.12g}", _fraction(draw, value)


def rounded(draw: Draw) -> tuple[str, str]:
    value = Fraction(draw.randint(1, 60), draw.choice((3, 6, 7, 9, 11, 12, 13)))
    return f"{float(value):.{draw.choice((2, 3, 6, 8))}f}", _fraction(draw, value)


def percents(draw: Draw) -> tuple[str, str]:
    n = draw.randint(1, 150)
    return draw.choice((rf"{n}\%", rf"{n + 1}\%")), draw.choice((f"{n}", f"{n / 100:.12g}", rf"{n}\%"))


def radicals(draw: Draw) -> tuple[str, str]:
    a, b, c = draw.randint(2, 9), draw.choice((2, 3, 5, 6, 7, 10)), draw.randint(2, 6)
    ways = [
        (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}"), (rf"{a}\sqrt{{{b}}}", rf"{a}\sqrt{b}"),
        (rf"\frac{{{a}}}{{\sqrt{{{b}}}}}", rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}"),
        (rf"{a}\sqrt{{{b}}}", rf"{b}\sqrt{{{a}}}"),
        (rf"\frac{{{a}+\sqrt{{{b}}}}}{{{c}}}", rf"\frac{{{a}}}{{{c}}}+\frac{{\sqrt{{{b}}}}}{{{c}}}"),
        (rf"{a}+\sqrt{{{b}}}", rf"\sqrt{{{b}}}+{a}"), (rf"{a}-\sqrt{{{b}}}", rf"\sqrt{{{b}}}-{a}"),
        (rf"\sqrt{{{a}}}\cdot\sqrt{{{b}}}", rf"\sqrt{{{a * b}}}"),
        (rf"\sqrt{{{a}+{b}}}", rf"\sqrt{{{a}}}+\sqrt{{{b}}}"),
    ]  # fmt: skip
    one, other = draw.choice(ways)
    return (one, other) if draw.random() < 0.5 else (other, one)


def powers(draw: Draw) -> tuple[str, str]:
    base, exponent = draw.randint(2, 9), draw.randint(2, 7)
    value = base**exponent + draw.choice((0, 0, 1))
    return draw.choice((rf"{base}^{{{exponent}}}", rf"{base}^{exponent}")), f"{value}"


def roots(draw: Draw) -> tuple[str, str]:
    n, k = draw.randint(2, 6), draw.choice((3, 4, 5))
    return rf"\sqrt[{k}]{{{n**k + draw.choice((0, 0, 1))}}}", f"{n}"


def polynomials(draw: Draw) -> tuple[str, str]:
    a, b, c = draw.randint(2, 9), draw.randint(1, 9), draw.randint(1, 9)
    terms = [f"{a}x^2", f"{b}x", f"{c}"]
    draw.shuffle(terms)
    wrong = draw.choice((0, 0, 1))
    return "+".join(terms), f"{a}x^2+{b + wrong}x+{c}"


def products(draw: Draw) -> tuple[str, str]:
    a, b = _signed(draw, 1, 9), _signed(draw, 1, 9)
    middle, last = a + b, a * b + draw.choice((0, 0, 1))
    return f"(x{a:+})(x{b:+})", f"x^2{middle:+}x{last:+}"


def quotients(draw: Draw) -> tuple[str, str]:
    a, b = draw.randint(1, 9), draw.randint(2, 9)
    return rf"\frac{{x^2-{a * a}}}{{x-{a}}}", draw.choice((f"x+{a}", f"x-{a}", rf"\frac{{{b}x+{a * b}}}{{{b}}}"))


def angles(draw: Draw) -> tuple[str, str]:
    a, b = draw.randint(1, 7), draw.randint(2, 9)
    ways = ((rf"\frac{{{a}\pi}}{{{b}}}", rf"\frac{{{a}}}{{{b}}}\pi"), (rf"{a * 15}^\circ", f"{a * 15}"),
            (rf"{a}\pi", rf"\pi\cdot {a}"), (rf"{a}\pi", f"{a}"), (r"\sin\frac{\pi}{6}", r"\frac{1}{2}"),
            (rf"{a * 15}^{{\circ}}", rf"{a * 15 + draw.choice((0, 5))}^\circ"), (r"\cos(\pi)", "-1"),
            (r"\tan\frac{\pi}{3}", rf"\sqrt{{{draw.choice((2, 3))}}}"))  # fmt: skip
    return draw.choice(ways)


def logarithms(draw: Draw) -> tuple[str, str]:
    a, n = draw.randint(2, 5), draw.randint(2, 5)
    ways = ((rf"\log_{{{a}}}{{{a**n}}}", f"{n}"), (rf"\log_{a}({a**n})", f"{n + 1}"), (rf"\ln(e^{{{n}}})", f"{n}"),
            (rf"{n}\ln {a}", rf"\ln {a**n}"), (rf"\ln {a}+\ln {n}", rf"\ln {a * n}"), (rf"\ln {a}", rf"\ln {a + 1}"),
            (rf"e^{n}", rf"e^{{{n}}}"))  # fmt: skip
    return draw.choice(ways)


def _same_or_not(draw: Draw, items: list[int]) -> list[int]:
    if draw.random() < 0.3:
        items = [*items]
        items[draw.randrange(len(items))] += 1
    return items


def pairs(draw: Draw) -> tuple[str, str]:
    items = [_signed(draw, 0, 20) for _ in range(draw.choice((2, 2, 3)))]
    said = _same_or_not(draw, items)
    said = said[::-1] if draw.random() < 0.2 else said
    marks = draw.choice((("(", ")"), (r"\left(", r"\right)")))
    return marks[0] + ",".join(map(str, said)) + marks[1], f"({', '.join(map(str, items))})"


def intervals(draw: Draw) -> tuple[str, str]:
    low = _signed(draw, 0, 20)
    high = low + draw.randint(1, 20)
    ends = [draw.choice("(["), draw.choice(")]")]
    said = [draw.choice("(["), draw.choice(")]")] if draw.random() < 0.4 else ends
    right = draw.choice((f"{high}", r"\infty"))
    ends[1], said[1] = (")", ")") if right != f"{high}" else (ends[1], said[1])
    return rf"\left{said[0]}{low},{right}\right{said[1]}", f"{ends[0]}{low}, {right}{ends[1]}"


def sets(draw: Draw) -> tuple[str, str]:
    items = draw.sample(range(-20, 20), draw.choice((2, 3, 4)))
    said = _same_or_not(draw, draw.sample(items, len(items)))
    return rf"\{{{','.join(map(str, said))}\}}", rf"\{{{', '.join(map(str, items))}\}}"


def lists(draw: Draw) -> tuple[str, str]:
    items = draw.sample(range(-20, 20), draw.choice((2, 3)))
    said = _same_or_not(draw, draw.sample(items, len(items)))
    joined = draw.choice((", ", ",", r" \text{ and } ", r",\ "))
    return joined.join(map(str, said)), ", ".join(map(str, items))


def unions(draw: Draw) -> tuple[str, str]:
    a, b = _signed(draw, 1, 9), draw.randint(10, 20)
    parts = [rf"(-\infty,{a})", rf"({b},\infty)"]
    draw.shuffle(parts)
    return r"\cup ".join(parts), rf"(-\infty, {a + draw.choice((0, 0, 1))}) \cup ({b}, \infty)"


def matrices(draw: Draw) -> tuple[str, str]:
    items = [_signed(draw, 0, 9) for _ in range(4)]
    said = _same_or_not(draw, items)
    a, b, c, d = items
    e, f, g, h = said
    kind = draw.choice("pb")
    return (rf"\begin{{{kind}matrix}} {e} & {f} \\ {g} & {h} \end{{{kind}matrix}}",
            rf"\begin{{pmatrix}}{a}&{b}\\{c}&{d}\end{{pmatrix}}")  # fmt: skip


def assignments(draw: Draw) -> tuple[str, str]:
    n = _signed(draw)
    value = draw.choice((f"{n}", rf"\frac{{{n}}}{{7}}"))
    said = value if draw.random() < 0.7 else f"{n + 1}"
    name = draw.choice("xyn")
    other = draw.choice((name, name, name, "z"))
    return draw.choice((f"{name}={said}", f"{name} = {said}", said)), draw.choice((value, f"{other} = {value}"))


def lines(draw: Draw) -> tuple[str, str]:
    a, b = draw.randint(2, 9), _signed(draw, 1, 9)
    ways = ((f"y={a}x{b:+}", f"y = {a}x {b:+}"), (f"y={a}x{b:+}", f"{a}x-y{b:+}=0"),
            (f"y={a}x{b:+}", f"y = {a}x {-b:+}"),
            (f"{a}x{b:+}=y", f"y={a}x{b:+}"))  # fmt: skip
    return draw.choice(ways)


def bounds(draw: Draw) -> tuple[str, str]:
    n = _signed(draw)
    sign, same, other = draw.choice(
        (("<", "<", ">"), (r"\le", r"\leq", "<"), (">", ">", r"\ge"), (r"\ge", r"\geq", r"\le"))
    )
    turned = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}[sign]
    said = draw.choice((f"x {sign} {n}", rf"x {same} {n}", rf"{n} {turned} x", f"x {other} {n}", f"x {sign} {n + 1}"))
    return said, f"x {sign} {n}"


def units(draw: Draw) -> tuple[str, str]:
    n = draw.randint(1, 500)
    unit = draw.choice(
        (r"\text{ cm}", r"\text{ apples}", r"\text{ cm}^2", r"\ \text{m/s}", " cm", r"\text{ dollars}", r"\mathrm{ km}")
    )
    return f"{n + draw.choice((0, 0, 1))}{unit}", draw.choice((f"{n}", f"{n}{unit}"))


def texts(draw: Draw) -> tuple[str, str]:
    words = ("Monday", "Tuesday", "even", "odd", "Evelyn", "parabola", "ellipse", "yes", "no")
    word = draw.choice(words)
    said = word if draw.random() < 0.6 else draw.choice(words)
    return rf"\text{{{said}}}", rf"\text{{{word}}}"


def choices(draw: Draw) -> tuple[str, str]:
    letter = draw.choice("ABCDE")
    said = letter if draw.random() < 0.6 else draw.choice("ABCDE")
    return draw.choice((rf"\text{{({said})}}", rf"\text{{{said}}}", rf"\textbf{{({said})}}")), rf"\text{{({letter})}}"


def both_signs(draw: Draw) -> tuple[str, str]:
    a, b = draw.randint(1, 9), draw.choice((2, 3, 5))
    said = a + draw.choice((0, 0, 1))
    return draw.choice(((rf"\pm {said}", f"-{a}, {a}"), (rf"x=\pm {said}", rf"x = \pm {a}"), (rf"{said}\pm\sqrt{{{b}}}",
                        rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}")))  # fmt: skip


def complexes(draw: Draw) -> tuple[str, str]:
    a, b = _signed(draw, 1, 9), draw.randint(2, 9)
    ways = (
        (f"{a}+{b}i", f"{b}i{a:+}"),
        (f"{a}-{b}i", f"{a}+{b}i"),
        (f"{b}i", f"{b}"),
        (f"{2 * a}+{2 * b}i", f"2({a}+{b}i)"),
    )
    return draw.choice(ways)


def counts(draw: Draw) -> tuple[str, str]:
    from math import comb, factorial

    n = draw.randint(3, 9)
    k = draw.randint(1, n - 1)
    off = draw.choice((0, 0, 1))
    return draw.choice(((f"{n}!", f"{factorial(n) + off}"), (rf"\binom{{{n}}}{{{k}}}", f"{comb(n, k) + off}"),
                        (rf"\frac{{{n}!}}{{{k}!}}", f"{factorial(n) // factorial(k) + off}")))  # fmt: skip


def money(draw: Draw) -> tuple[str, str]:
    n = draw.randint(1, 9_999)
    return rf"\${n + draw.choice((0, 0, 1)):,}", draw.choice((rf"\${n}", f"{n}"))


def scientific(draw: Draw) -> tuple[str, str]:
    a, n = draw.randint(11, 99), draw.randint(2, 8)
    off = draw.choice((0, 0, 1))
    return rf"{a / 10:g} {draw.choice((chr(92) + 'times', chr(92) + 'cdot'))} 10^{{{n}}}", f"{a * 10 ** (n - 1) + off}"


def absolutes(draw: Draw) -> tuple[str, str]:
    a, b = draw.randint(1, 9), draw.randint(2, 9)
    return draw.choice(((f"|{-a}|", f"{a}"), (rf"|x-{a}|", rf"|{a}-x|"), (rf"\left|{-a}\right|", f"{a + 1}"),
                        (rf"\lfloor {a}.5 \rfloor", f"{a}"), (rf"\lceil {a}.5 \rceil", f"{a + draw.choice((0, 1))}"),
                        (rf"\max({a},{a + b})", f"{a + b}"), (rf"x^{{-{a}}}", rf"\frac{{1}}{{x^{a}}}")))  # fmt: skip


BEYOND = (  # said, reference, ours, math-verify's, who is right
    ("2x=6", "x=3", True, False, "ours: a multiple of the reference"),
    ("12x+18=0", "6x+9=0", True, False, "ours: a multiple of the reference"),
    ("(1+2i)(1+i)", "-1+3i", True, False, "ours: it multiplies no i by i"),
    (r"\sqrt{-9}", "3i", True, False, "ours"),
    (r"e^{i\pi}", "-1", True, False, "ours"),
    (r"\ln(xy)", r"\ln x+\ln y", True, False, "ours, where both have a value"),
    (r"12.5\%", "12.5", True, False, r"ours: it reads 50\% as 50, and 12.5\% not as 12.5"),
    ("x>3", r"(3,\infty)", True, False, "ours: it says so the other way round"),
    ("1<x<3", "(1,3)", True, False, "ours: it says so the other way round"),
    ("2 1/2", "5/2", True, False, "ours: it reads 3/2"),
    ("1.5e3", "1500", True, False, "ours: it multiplies by Euler's number"),
    (r"8.3 \times 10^{6}", "8300000", True, False, "ours: its product is a float; 13 of the pairs are such"),
    ("1e-7", "1", False, False, "both: neither is it nothing"),
    (r"5\text{ cm}", r"5\text{ m}", False, True, "ours: it reads no units"),
    (r"\{1,2\}", "(1,2)", False, True, "ours: a set is no pair"),
    ("(2,1)", "1,2", False, True, "ours, where order counts: it sorts one side alone"),
    ("3.1415926", "3.1415927", False, True, "ours: it rounds to six decimals"),
    ("0.0000001", "0.0000002", False, True, "ours: it rounds both to 0"),
    ("0.66666666", r"\frac23", True, True, "both"),
    ("0.666666", r"\frac23", True, False, "either: cut off, not rounded"),
    ("10^{-7}", "0", False, False, "both"),
)

KINDS: tuple[Callable[[Draw], tuple[str, str]], ...] = (
    integers, fractions, mixed, decimals, rounded, percents, radicals, powers, roots, polynomials, products, quotients,
    angles, logarithms, pairs, intervals, sets, lists, unions, matrices, assignments, lines, bounds, units, texts,
    choices, both_signs, complexes, counts, money, scientific, absolutes,
)  # fmt: skip
SAYINGS = (
    r"$\boxed{X}$", r"We add both sides, so the result is $\boxed{X}$.", r"\[ \boxed{X} \]", r"The answer is $X$.",
    r"Since $a = 4$ and $b = 9$, we are done." + "\n\n" + r"**Final Answer:** $\boxed{X}$", r"$X$",
    r"Final Answer: The final answer is $X$. I hope it is correct.", r"First we see that $k = 3$. Hence \(\boxed{X}\).",
)  # fmt: skip


def made(count: int, seed: int = SEED) -> list[Pair]:
    """`count` pairs, the kinds in turn."""
    draw, found = random.Random(seed), []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        said, reference = kind(draw)
        found.append((kind.__name__, draw.choice(SAYINGS).replace("X", said), reference))
    return found


def digest(found: list[Pair]) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


_ASK = r"""
import json, logging, sys
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
for line in sys.stdin:
    said, reference = json.loads(line)
    print(int(bool(verify(parse("$" + reference + "$"), parse(said)))), flush=True)
"""


def asked(interpreter: str, found: list[Pair]) -> list[bool]:
    """What math-verify says of each pair, in that interpreter."""
    lines = "".join(json.dumps(pair[1:]) + "\n" for pair in found)
    done = subprocess.run([interpreter, "-c", _ASK], input=lines, capture_output=True, text=True, check=False)
    if done.returncode or len(done.stdout.split()) != len(found):
        raise NoReference(f"{INTERPRETER}: {done.stderr[-300:]}")
    return [line == "1" for line in done.stdout.split()]


def theirs(found: list[Pair]) -> list[bool]:
    """math-verify's verdicts: asked where it is installed, else those that are kept. NoReference without either."""
    if interpreter := os.environ.get(INTERPRETER):
        return asked(interpreter, found)
    kept = json.loads(STORED.read_text(encoding="utf-8"))
    if kept["digest"] != digest(made(kept["pairs"])) or found != made(kept["pairs"])[: len(found)]:
        raise NoReference(f"{STORED.name} is of other pairs, and {INTERPRETER} names no Python with math-verify")
    return [bit == "1" for bit in f"{int(kept['verdicts'], 16):0{kept['pairs']}b}"][: len(found)]


def differential(count: int) -> Tally:
    """The first `count` pairs, by kind. NoReference."""
    tally, found = Tally(), made(count)
    for (kind, said, reference), verdict in zip(found, theirs(found), strict=True):
        score = score_math({"answer": reference}, said)["math"]
        tally.take(kind, verdict, score.verdict, said, reference, score.reason)
    return tally


def unlike_listed() -> list[str]:
    """Of the forms on which both are known to part, those that we judge otherwise than it is listed."""
    return [said for said, reference, ours, _, _ in BEYOND
            if score_math({"answer": reference}, f"${said}$")["math"].verdict is not ours]  # fmt: skip


def plain_per_second(count: int = 4_000) -> float:
    """Answers of numbers, fractions, pairs, sets, texts, which take no child, scored in a second of processor time."""
    plain = ("integers", "fractions", "mixed", "decimals", "percents", "pairs", "intervals", "sets", "units", "texts")
    found = [pair for pair in made(4 * count) if pair[0] in plain][:count]
    start = time.process_time()
    for _, said, reference in found:
        score_math({"answer": reference}, said)
    return len(found) / (time.process_time() - start)


def keep(interpreter: str) -> None:
    """Ask math-verify of every pair and write what it said."""
    found = made(PAIRS)
    bits = "".join("01"[verdict] for verdict in asked(interpreter, found))
    kept = {"reference": "math-verify 0.9.0", "pairs": PAIRS, "digest": digest(found), "verdicts": f"{int(bits, 2):x}"}
    STORED.write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    keep(os.environ[INTERPRETER])
