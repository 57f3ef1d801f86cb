r"""Where in a text the final answer stands.

1. The last `\boxed{…}` or `\fbox{…}`, with those before it that only commas or `and` part from it; or, if it begins
   later, what the last `answer is` or `answer:` says: its formulas, else its words to the end of the sentence
2. else the last formula: `$…$`, `\(…\)`, `\[…\]`
3. else the last line with anything on it, or the last number of it where the line is a sentence
"""

from __future__ import annotations

import re
from collections import deque

from qualgate.scoring.mathematics.tree import Unread

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
_NUMBER = re.compile(
    r"[-−]?(?:[0-9]{1,9} [0-9]{1,9}/[0-9]{1,9}"
    r"|(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[1-9][0-9]{0,2}(?:[ \u00a0\u202f][0-9]{3})+)(?![0-9])|[0-9]+)"
    r"(?:\.[0-9]+)?(?:\s?/\s?[0-9]+)?|\.[0-9]+(?:\s?/\s?[0-9]+)?)\s?%?"
)
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
    behind = line.rpartition("=")[2] if "=" in line else line
    numbers = _NUMBER.findall(behind) or _NUMBER.findall(line)
    return numbers[-1].strip() if numbers else line
