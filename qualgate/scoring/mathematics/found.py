r"""Where in a text the final answer stands.

1. The last `\boxed{…}` or `\fbox{…}`, with those before it that only commas or `and` part from it; or, if it begins
   later, what the last `answer is` or `answer:` says: its formulas, else its words to the end of the sentence
2. else the last formula: `$…$`, `\(…\)`, `\[…\]`
3. else the last line with anything on it, or the last number of it where the line is a sentence
"""

from __future__ import annotations

import re
from collections import deque

from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Unread
from qualgate.scoring.outcome import quote
from qualgate.scoring.quantities import quantities

_BOX = re.compile(r"\\(?:boxed|fbox)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_MAX_JOINED = 16
_BETWEEN = re.compile(r"[\s$,;.]{0,20}(?:\\text\{)?\s{0,5}(?:and|or)?\s{0,5}\}?[\s$,;]{0,20}")
_SAYS = re.compile(r"\banswer(?:\s*\*\*)?(?:\s{1,5}is\b|\s*[:=])\s*:?(?:\s*\*\*)?", re.IGNORECASE)
# A `$` before a digit is money where the next one has a blank before it: `$5 and $6`.
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?![0-9][^$\n]*\s\$)([^$\n]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_SENTENCE = re.compile(
    r"\.(?=\s|\Z)|[,;]?\s{1,5}(?:because|since|which|where|I hope)\b|,\s{1,5}(?:so|as|and so)\b|\s{2,5}\("
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_MONEY = str.maketrans("", "", "$€£¥₹")
MAX_LINE = 4_000  # characters of the end of a text, where no formula is marked
MAX_TAIL = 20_000  # characters of the end of a text in which formulas are looked for


def final_answer(text: str) -> str:
    """The final answer as it is written. Unread where the last box is not closed, or nothing is said."""
    box = max(text.rfind(name) for name in ("\\boxed", "\\fbox"))
    said = None
    for said in _SAYS.finditer(text):  # noqa: B007 - the last one
        pass
    if said is not None and said.start() > box and (found := _said(text[said.end() : said.end() + MAX_LINE])):
        return found
    if box >= 0:
        return boxed(text)
    tail = text[-MAX_TAIL:]
    formulas = [_inside(match) for match in _FORMULA.finditer(tail)]
    if formulas:
        return formulas[-1]
    lines = [line for line in tail.splitlines() if line.strip()]
    if not lines:
        raise Unread("malformed", "the answer is empty")
    return _of_line(lines[-1][-MAX_LINE:])


def boxed(text: str) -> str:
    """What stands in the last box, and in those that belong to it. Unread where it is not closed."""
    found: list[str] = []
    end = len(text)
    for box in reversed(deque(_BOX.finditer(text), maxlen=_MAX_JOINED)):
        content = _content(text, box.end(), end)
        if found and (content is None or not _BETWEEN.fullmatch(text, content[1], end)):
            break
        if content is None:
            raise Unread("malformed", "the last box is not closed")
        if not found or found[-1] != content[0]:
            found.append(content[0])
        end = box.start()
    return ", ".join(reversed(found))


def _content(text: str, place: int, limit: int) -> tuple[str, int] | None:
    """What the box holds whose name ends at `place`, and where it ends itself; None where it is not closed."""
    while place < limit and text[place].isspace():
        place += 1
    if place < limit and text[place] != "{":  # `\boxed 5`
        end = min((at for sign in "$\n" if (at := text.find(sign, place, limit)) >= 0), default=limit)
        return text[place:end].strip(), end
    depth = 0
    for match in _BRACE.finditer(text, place, limit):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0 and match[0] == "}":
            return text[place + 1 : match.start()].strip(), match.end()
    return None


def _inside(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()


def _said(rest: str) -> str:
    """Of what follows `answer is`: the formulas at the beginning of it, or its words."""
    line = next((line for line in rest.splitlines() if line.strip(" *")), "")
    if line.strip() in (r"\[", "$$"):
        line = rest.replace("\n", " ")
    formulas = list(_FORMULA.finditer(line))
    if formulas:
        last = 0
        while last + 1 < len(formulas) and _BETWEEN.fullmatch(line, formulas[last].end(), formulas[last + 1].start()):
            last += 1
        return ", ".join(_inside(match) for match in formulas[: last + 1])
    cut = _SENTENCE.search(line)
    return line[: cut.start() if cut else None].strip(" *\t")


def _of_line(line: str) -> str:
    """The line, if it is an answer by itself; the last number of a sentence."""
    line = line.strip(" *\t\r`>#")
    if len(_WORD.findall(line)) < 3:
        return line
    return _last_number(line)


def _last_number(line: str) -> str:
    """The last number of a sentence, or the sentence without one. Unread for a piece of an expression."""
    last = deque(quantities(line), maxlen=1)
    if not last:
        return line
    found = last[0]
    if found.value is None and not found.parts:
        raise Unread("unknown", f"the last number of {quote(line)} is not read: {found.unread}")
    share = re.search(rf"{re.escape(found.text)}\s?\\?%", line)
    text = found.text.translate(_MONEY) + (r"\%" if share else "")
    try:
        plain = found.value is None or exact(read(found.text.translate(_MONEY))) == found.value
    except Unread:
        plain = False
    return text if plain else f"{found.value}" + (r"\%" if share else "")
