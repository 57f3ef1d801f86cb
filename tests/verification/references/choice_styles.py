r"""Answers to multiple choice in 41 styles: what filters find in them, and what our own reading does.

lm-eval's filters are those that are installed. MMLU-Pro's three patterns are stated here as its script has them, with
`re` and its backtracking, which ours does without. An answer of a style is made of a letter, its choice's text and
reasons that name no choice; `ambiguous` ones name two.
"""

from __future__ import annotations

import random
import re

from qualgate.scoring.filters import FILTERS as OURS
from qualgate.scoring.filters import INVALID
from qualgate.scoring.multiple_choice import LETTERS, Ambiguous, chosen
from tests.verification.references.agreement import Tally
from tests.verification.references.filters_fuzz import Theirs

CHOICES = ("a red fox", "the sea", "7.5 kg", "no one", "Vienna", "x + 1", "in 1815", "it falls", "gold", "both")
REASONS = ("it is the only one that fits", "the others are too small", "we count 3 of them", "of what was said above",
           "it's as good a reason as any", "physics says so")  # fmt: skip
# L: the letter, T: its choice, R, Q: reasons, W: another letter.
STYLES = (
    "L", "(L)", "L.", "L)", "L:", "**L**", "**(L)**", r"\boxed{L}", r"$\boxed{L}$", r"\boxed{\text{L}}", "Option L",
    "T", "Answer: L", "Answer: (L)", "**Answer:** L", "The answer is L", "The answer is (L).", "The answer is **L**.",
    "The correct answer is L) T", "The final answer is: L", "L) T, because R", "(L) T. R", "L. T\nR", "L: T\n\nR",
    "**L** since R", "**L)** T\nR", "Option L, as R", "R. The answer is (L).", "R. So the answer is L: T. Q.",
    "R.\n\nAnswer: L", "R.\n\n**Answer: L**", "R.\nanswer: L\nQ.", r"R. Hence \boxed{L}.", r"R: \boxed{(L)}. Q.",
    r"R.\n$$\boxed{\textbf{L}}$$", "R, therefore (L).", "R, so it must be option L.", "R. I choose **L**.",
    "(W) is wrong, for R. The answer is (L).", r"W) cannot be, for R. \boxed{L: T}",
    r"The answer is W. R, so \boxed{L}",
)  # fmt: skip
AMBIGUOUS = ("(L) or (W)", "L) R\nW) Q", r"The answer is L: \boxed{W}", "**L** or **W**, for R",
             "Option L, or option W", "The answer is L or W", r"\boxed{L, W}", "R. Answer: L and W")  # fmt: skip
# Each filter's place in lm-eval: a task's file below its `tasks`, and the name that the filter has there.
FILTERS = {
    "custom-extract": ("mmlu_pro/_default_template_yaml", "custom-extract"),
    "choice-extract": ("mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml", "flexible-extract"),
}


def mmlu_pro(text: str) -> str:
    """MMLU-Pro's own patterns in turn; lm-eval's word where none finds a letter."""
    if found := re.search(r"answer is \(?([A-J])\)?", text):
        return found.group(1)
    if found := re.search(r".*[aA]nswer:\s*([A-J])", text):
        return found.group(1)
    found = re.search(r"\b[A-J]\b(?!.*\b[A-J]\b)", text, re.DOTALL)
    return found.group(0) if found else INVALID


def differential(count: int, seed: int) -> Tally:
    """`count` answers: by filter what it finds, and what our own reading finds, by style. NoReference."""
    theirs, tally, draw = Theirs(), Tally(), random.Random(seed)
    rows, meant = [], []
    for number in range(count):
        style = (*STYLES, *AMBIGUOUS)[number % (len(STYLES) + len(AMBIGUOUS))]
        right, other = draw.sample(range(len(CHOICES)), 2)
        reasons = draw.sample(REASONS, 2)
        said = {"L": LETTERS[right], "W": LETTERS[other], "T": CHOICES[right], "R": reasons[0], "Q": reasons[1]}
        text = re.sub(r"\b[LWTRQ]\b", lambda one, said=said: said[one[0]], style.replace(r"\n", "\n"))
        rows.append((text, {"choices": CHOICES}))
        meant.append((style, "ambiguous" if style in AMBIGUOUS else right))
    for name, (file, called) in FILTERS.items():
        for (said, case), found in zip(rows, theirs.found(name, theirs.of_task(file, called), rows), strict=True):
            tally.take(name, found, OURS[name](said, case), said)
    for (said, case), (style, right) in zip(rows, meant, strict=True):
        tally.take("mmlu_pro", mmlu_pro(said), OURS["mmlu_pro"](said, case), said)
        tally.take(f"read: {style}", right, _read(said), said)
    return tally


def _read(text: str) -> int | str | None:
    try:
        found = chosen(text, CHOICES, lenient=True)
    except Ambiguous:
        return "ambiguous"
    return None if found is None else found.place
