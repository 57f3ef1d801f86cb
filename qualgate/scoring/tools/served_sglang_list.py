r"""Where SGLang's pattern of Python's calls finds a list, in our own words and in linear time (`served_sglang_python`).

Its pattern is

    \[ (FIRST,\s*)* (LAST\s*)+ \]        FIRST: NAME\( (ARG,\s*)* (ARG\s)? \)      ARG: NAME=.*
                                         LAST:  NAME\( (ARG,\s*)* (ARG\s*)? \)

where `.*` runs over everything, calls and lists among it, and so each of its parts may end at nearly every comma or
bracket. Its engine tries the ways one by one, the longest first, and takes the first that comes to an end: a power of
two in arguments. Which way that is does not depend on where a part began, only on which commas and brackets can be
followed to the end: of those, each part takes the last. So they are found once, from the right.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from qualgate.scoring.tools.dialects.call import BadCall
from qualgate.scoring.tools.served_sglang_values import SERVER

_NAMED = r"[a-zA-Z]\w*+"
_CALL = re.compile(rf"{_NAMED}\(")
_ARGUMENT = re.compile(rf"{_NAMED}=")
_BLANK = re.compile(r"\s*+")
_BEGIN = re.compile(rf"\[(?={_CALL.pattern})")
_END = re.compile(r"\)\s*+\]")
_COMMA = re.compile(rf",\s*+(?:({_NAMED}=)|\))")
_CLOSED = re.compile(r"\s\),")
_WAYS = re.compile(rf",\s*+{_NAMED}=|\s\),\s*+{_NAMED}\({_NAMED}=")  # an argument that may begin there, or may not
_CALLS = re.compile(rf"\)\s*+{_NAMED}\({_NAMED}=")
_MOST_WAYS = 30  # powers of two: its engine takes minutes


def listed(text: str) -> str:
    """The list that the pattern finds, "" where it finds none. BadCall `too_much` where its engine never ends."""
    ends = _Ends(text)
    ways, calls = ([one.start() for one in pattern.finditer(text)] for pattern in (_WAYS, _CALLS))
    for begin in _BEGIN.finditer(text):
        at = ends.argument_of(begin.end())
        power = len(ways) - bisect_left(ways, at)
        power += len(calls) - bisect_left(calls, at) if ends.last < at else 0
        if power > _MOST_WAYS:
            raise BadCall("too_much", f"{SERVER} may part these calls in 2^{power} ways, and tries them: it never ends")
        if end := ends.of_calls(begin.end()):
            return text[begin.start() : end]
    return ""


class _Ends:
    """Where the pattern ends that goes on from a place; 0: nowhere.

    last: of the brackets that close a call, the last with which the list is closed. Of the others, that are 0 until
    they are found: where FIRST's last comma and bracket, and LAST's last comma, stand, each with its end.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        closed = list(_END.finditer(text))
        self.last, self._end = (closed[-1].start(), closed[-1].end()) if closed else (-1, 0)
        self._comma = self._first_comma = self._first_closed = (-1, 0)
        for one in sorted((*_COMMA.finditer(text), *_CLOSED.finditer(text)), key=re.Match.start, reverse=True):
            if closed:
                (self._take_comma if one.re is _COMMA else self._take_closed)(one)

    def _take_closed(self, one: re.Match[str]) -> None:
        if self._first_closed[0] < 0 and (end := self.of_calls(self._past(one.end()))):
            self._first_closed = one.start(), end

    def _take_comma(self, one: re.Match[str]) -> None:
        at = one.end()
        if self._comma[0] < 0:
            end = (self._end if at <= self.last else 0) if one[1] else self._behind(at)
            self._comma = (one.start(), end) if end else self._comma
        if self._first_comma[0] < 0:
            if one[1]:
                end = self._first_closed[1] if self._first_closed[0] >= at else 0
            else:
                end = self.of_calls(self._past(at + 1)) if self._text.startswith(",", at) else 0
            self._first_comma = (one.start(), end) if end else self._first_comma

    def _past(self, at: int) -> int:
        blank = _BLANK.match(self._text, at)
        assert blank is not None, "it may be empty"
        return blank.end()

    def argument_of(self, at: int) -> int:
        """Where the first argument of the calls at `at` begins; the text's end where they have none."""
        while call := _CALL.match(self._text, at):
            if argument := _ARGUMENT.match(self._text, call.end()):
                return argument.end()
            if not self._text.startswith(")", call.end()):
                break
            at = self._past(call.end() + 1 + self._text.startswith(",", call.end() + 1))
        return len(self._text)

    def of_calls(self, at: int) -> int:
        """From a FIRST, or the first LAST."""
        while call := _CALL.match(self._text, at):
            if argument := _ARGUMENT.match(self._text, call.end()):
                for where, end in (self._first_comma, self._first_closed):
                    if where >= argument.end():
                        return end
                return self._of_last(argument.end())
            if not self._text.startswith("),", call.end()):
                return self._behind(call.end() + 1) if self._text.startswith(")", call.end()) else 0
            at = self._past(call.end() + 2)
        return 0

    def _of_last(self, at: int) -> int:
        """From behind the name of LAST's first argument."""
        where, end = self._comma
        return end if where >= at else self._end if at <= self.last else 0

    def _behind(self, at: int) -> int:
        """From behind the bracket that closes LAST."""
        while call := _CALL.match(self._text, at := self._past(at)):
            if argument := _ARGUMENT.match(self._text, call.end()):
                return self._of_last(argument.end())
            if not self._text.startswith(")", call.end()):
                return 0
            at = call.end() + 1
        return at + 1 if self._text.startswith("]", at) else 0
