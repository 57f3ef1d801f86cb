r"""Final answers in two writings, right and wrong, in 32 kinds: our verdicts beside math-verify's.

The pairs, with what math-verify 0.9.0 said of each, are kept in `math_pairs.jsonl`; where `QUALGATE_MATH_VERIFY` names
a Python that has it, it is asked again. Forms on which it is known to err, or to read another way, are no pairs and
stand in `BEYOND`, each with what is right.

    QUALGATE_MATH_VERIFY=…/bin/python python -m tests.verification.references.math_pairs     writes the file anew
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from functools import cache
from pathlib import Path

from qualgate.scoring.mathematics import score_math
from tests.verification.references.agreement import NoReference, Tally, write_lines

STORED = Path(__file__).with_suffix(".jsonl")
INTERPRETER = "QUALGATE_MATH_VERIFY"
PAIRS = 5_120

Pair = tuple[str, str, str, bool]  # kind, what a model says, the reference, math-verify's verdict

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


@cache
def stored() -> list[Pair]:
    """Of the 32 kinds in turn."""
    _, *lines = map(json.loads, STORED.read_text(encoding="utf-8").splitlines())
    return [(kind, said, reference, verdict) for kind, said, reference, verdict in lines]


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
    lines = "".join(json.dumps(pair[1:3]) + "\n" for pair in found)
    done = subprocess.run([interpreter, "-c", _ASK], input=lines, capture_output=True, text=True, check=False)
    if done.returncode or len(done.stdout.split()) != len(found):
        raise NoReference(f"{INTERPRETER}: {done.stderr[-300:]}")
    return [line == "1" for line in done.stdout.split()]


def differential(count: int) -> Tally:
    """The first `count` pairs, by kind. NoReference where math-verify is asked and does not answer."""
    tally, found = Tally(), stored()[:count]
    interpreter = os.environ.get(INTERPRETER)
    verdicts = asked(interpreter, found) if interpreter else [pair[3] for pair in found]
    for (kind, said, reference, _), verdict in zip(found, verdicts, strict=True):
        score = score_math({"answer": reference}, said)["math"]
        tally.take(kind, verdict, score.verdict, said, reference, score.reason)
    return tally


def unlike_listed() -> list[str]:
    """Of the forms on which both are known to part, those that we judge otherwise than it is listed."""
    return [said for said, reference, ours, _, _ in BEYOND
            if score_math({"answer": reference}, f"${said}$")["math"].verdict is not ours]  # fmt: skip


def plain_per_second() -> float:
    """Answers of numbers, fractions, pairs, sets, texts, which take no child, scored in a second of processor time."""
    plain = ("integers", "fractions", "mixed", "decimals", "percents", "pairs", "intervals", "sets", "units", "texts")
    found = [pair for pair in stored() if pair[0] in plain]
    start = time.process_time()
    for _, said, reference, _ in found:
        score_math({"answer": reference}, said)
    return len(found) / (time.process_time() - start)


if __name__ == "__main__":
    verdicts = asked(os.environ[INTERPRETER], stored())
    lines = ([*pair[:3], verdict] for pair, verdict in zip(stored(), verdicts, strict=True))
    write_lines(STORED, [{"reference": "math-verify 0.9.0"}, *lines])
