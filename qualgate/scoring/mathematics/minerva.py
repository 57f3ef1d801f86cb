r"""Minerva's own reading of a final answer, as lm-evaluation-harness 0.4.13 has it, and the AIME's whole numbers.

Minerva's answer is what stands between `Final Answer: The final answer is` and `I hope it is correct`, behind its last
`=`, then freed of units, blanks, `$`, `\text{…}` and short forms of fractions and roots: a text, to be compared as one.
Kept where it surprises: `a ` and `an ` fall anywhere, `\ldots` too; of several formulas the first is left.
"""

from __future__ import annotations

import re

from qualgate.scoring.mathematics.found import final_answer
from qualgate.scoring.mathematics.tree import Unread

_BEGINS, _HOPE = "Final Answer: The final answer is", " I hope it is correct."
_ENDS = re.compile(r"[^\n] I hope it is correct[^\n]")
MAX_ANSWER = 2_000  # characters; some patterns take quadratic time where a brace is not closed
_SUBSTITUTIONS = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"), (",\\text{and}", ","),
    ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", "\\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}",
    "\\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', "\\dots",
)  # fmt: skip
_WORDS = tuple(re.compile(rf"(?<!\\)\b{word}\b") for word in _REMOVED if word.isalpha())
_COMMAND = re.compile(r"(\\[a-zA-Z]+)")
_SHAPES = tuple((re.compile(pattern), made) for pattern, made in (
    (r"(.*?)(\$)(.*?)(\$)(.*)", "$\\3$"), (r"(\\text\{)(.*?)(\})", "\\2"), (r"(\\textbf\{)(.*?)(\})", "\\2"),
    (r"(\\overline\{)(.*?)(\})", "\\2"), (r"(\\boxed\{)(.*)(\})", "\\2"), (r"(frac)([^{])(.)", "frac{\\2}{\\3}"),
    (r"(sqrt)(\[[^\]]*\])(\w)", "\\1\\2{\\3}"), (r"(sqrt)(?!\[)([^{])", "sqrt{\\2}"),
))  # fmt: skip
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")
_AIME = re.compile(r"0*([0-9]{1,3})(?:\.0*)?")


def minerva_answer(text: str) -> str | None:
    """Return the answer that Minerva's script compares; None if it is not announced as the script expects."""
    announced = _announced(text + _HOPE[1:])
    return None if announced is None or len(announced) > MAX_ANSWER else normalized(announced)


def _announced(text: str) -> str | None:
    """Return the answer of the first announcement that has both of its phrases in one line; None without one."""
    start = text.find(_BEGINS)
    while start >= 0:
        begin = start + len(_BEGINS)
        line_end = text.find("\n", begin)
        line_end = len(text) if line_end < 0 else line_end
        if ending := _ENDS.search(text, begin, line_end):
            return text[begin : ending.start()].strip()
        start = text.find(_BEGINS, line_end)
    return None


def normalized(answer: str) -> str:
    """Normalize an answer as in Lewkowycz et al. (2022), appendix D."""
    answer = answer.split("=")[-1]
    for word in _WORDS:
        answer = word.sub("", answer)
    for before, after in _SUBSTITUTIONS:
        answer = answer.replace(before, after)
    for removed in _REMOVED:
        if removed.isalpha():
            pieces = _COMMAND.split(answer)
            answer = "".join(piece if index % 2 else piece.replace(removed, "") for index, piece in enumerate(pieces))
        else:
            answer = answer.replace(removed, "")
    for pattern, replacement in _SHAPES:
        answer = pattern.sub(replacement, answer)
    answer = answer.replace("$", "")
    return answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer


def aime_answer(text: str) -> str | None:
    """Return the final answer without leading zeros if it is a whole number from 000 to 999, else None."""
    try:
        match = _AIME.fullmatch(final_answer(text).strip("$ ").rpartition("=")[2].strip("$ ."))
    except Unread:
        return None
    return str(int(match[1])) if match else None
