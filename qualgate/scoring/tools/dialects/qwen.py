"""Qwen3-Coder's grammar, and Seed-OSS's: a call between tags, one pair of tags an argument, which may hold such tags.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

What a tag is follows from where it stands. An argument ends where `</parameter>` is followed by the next argument or by
`</function>`; whole pairs within it are text. A `<parameter=` that begins a line, follows another tag, or names an
argument of the tool that is yet to come, opens one: if another is still open there, that one was never closed, which is
a fault and no value (vLLM's parser ends it there). A block ends at the first `</tool_call>` before which all of this is
closed. In prose, tags that no call is made of are words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from qualgate.scoring.outcome import quote
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.stream import Stream
from qualgate.scoring.tools.dialects.tagged import properties, typed

FUNCTION, END = "<function=", "</function>"
MOST_ENDS = 64  # of one block, that are none: each is looked at from the block's beginning
NEAR = 64  # characters before a tag in which what stands before it is looked for

_HEAD = re.compile(r"\s*<function=(?P<name>[^>\n]+)>")
_ARGUMENT = re.compile(r"\s*<parameter=(?P<key>[^>]*)>")
_TAG = re.compile(r"<parameter=(?P<key>[^>\n]{1,256})>|</parameter>")
_NEXT = re.compile(r"\s*(<parameter=|</function>|</parameter>|)")
_TAIL = re.compile(r"\s*</function>\s*\Z")
_NAMED = re.compile(r"<function=([^>\n]{0,256})(>?)")
_SPACE = re.compile(r"\s*")

Argument = tuple[str, str]  # key and text


def read(text: str, tools: Tools) -> Sequence[Call]:
    """Read the call of one block, whose values stand on lines of their own."""
    return _call(text, tools, lambda value: value[value[:1] == "\n" :].removesuffix("\n"))


def read_whole(text: str, tools: Tools) -> Sequence[Call]:
    """Read the call of one block, whose values begin and end at their tags (MiMo)."""
    return _call(text, tools, str)


def _call(text: str, tools: Tools, value_of: Callable[[str], str]) -> Sequence[Call]:
    """Read the one call of a block. value_of: decodes an argument's raw text. BadCall for anything else."""
    name, raw_arguments = _parts(text, tools)
    schemas, arguments = properties(tools, name), {}
    for key, value in raw_arguments:
        if key in arguments:
            raise BadCall("duplicate_key", f"the argument {quote(key)} twice in one call")
        arguments[key] = typed(value_of(value), schemas.get(key))
    return [Call(name, arguments)]


def _parts(text: str, tools: Tools) -> tuple[str, list[Argument]]:
    """Return the name and the raw arguments of a call. BadCall if a tag is missing."""
    begin = _HEAD.match(text)
    if not begin:
        raise BadCall("call_shape", f"{quote(text)} does not begin with a name")
    name, position = begin["name"].strip(), begin.end()
    documented, pairs = properties(tools, name).keys(), []
    to_come = set(documented)
    while pair := _ARGUMENT.match(text, position):
        key = pair["key"].strip()
        to_come.discard(key)
        position = _end_of_value(text, pair.end(), key, to_come if documented else None)
        pairs.append((key, text[pair.end() : position]))
        position += len("</parameter>")
    if not _TAIL.match(text, position):
        remainder = text[position:].strip()
        opened = remainder.startswith("<") or not remainder
        raise BadCall("unbalanced" if opened else "stray_text", f"{quote(remainder)} after {len(pairs)} arguments")
    return name, pairs


def _end_of_value(text: str, start: int, key: str, to_come: Collection[str] | None) -> int:
    """Return the end of the value that begins at `start`. BadCall if it is not closed.

    to_come: the tool's other arguments, whose tags open a value; None: unknown, so any tag does.
    """
    depth, first_inner = 1, ""
    for tag in _TAG.finditer(text, start):
        if tag["key"] is None:
            follows = _NEXT.match(text, tag.end())[1]  # pyrefly: ignore[unsupported-operation]
            if follows and (depth > 1 or follows != "</parameter>"):
                depth -= 1
                if not depth:
                    return tag.start()
        elif to_come is None or tag["key"].strip() in to_come or _opens(text, tag.start()):
            depth, first_inner = depth + 1, first_inner or tag["key"]
    before = f" before {quote(first_inner)}" if first_inner else ""
    raise BadCall("unbalanced", f"the argument {quote(key)} is not closed{before}")


def _opens(text: str, at: int) -> bool:
    """Return whether the tag at `at` begins a line or follows another tag."""
    before = text[max(0, at - NEAR) : at].rstrip(" \t")
    return before[-1:] in ("\n", ">", "")


class Blocks(Stream):
    """A stream of such calls: tags in prose are words, and a block is tried up to each of its possible ends."""

    def __init__(self, dialect, tools: Tools) -> None:
        super().__init__(dialect, tools)
        self._fault: BadCall | None = None  # why the block we are in did not end where it might have
        self._ends = 0

    def _words(self, marker: str, start: int) -> bool | None:
        """Return whether a marker is mere words of the answer; None: the text so far does not decide that."""
        text, end = self.text, start + len(marker)
        if marker in self.dialect.open:
            first = text[_SPACE.match(text, end).end() :][:1]  # pyrefly: ignore[missing-attribute]
            return first not in "<{[" if first else None
        if marker in (self.dialect.close, END):
            return text[max(0, start - NEAR) : start].rstrip()[-1:] != ">"
        if marker != FUNCTION:
            return False
        named = _NAMED.match(text, start)
        assert named is not None, "it begins with the marker"
        if not named[2]:
            return None if named.end() == len(text) and len(named[1]) < 256 else True
        following = text[_SPACE.match(text, named.end()).end() :][:12]  # pyrefly: ignore[missing-attribute]
        tags = ("<parameter=", END)
        if following.startswith(tags):
            return False
        return None if any(tag.startswith(following) for tag in tags) else True

    def _inside(self) -> bool:
        """Take the call that ends at the next closing marker where it can be read; return whether there was one.

        A closing marker may stand within a value, so that several are tried.
        """
        close = self.dialect.close
        while (end := self.text.find(close, self._seek)) >= 0:
            body = self.text[self._start : end]
            self._seek = end + len(close)
            try:
                _parts(body, self.tools)
            except BadCall as fault:
                self._fault, self._ends = self._fault or fault, self._ends + 1
                if self._ends > MOST_ENDS:
                    raise BadCall("unbalanced", f"call {len(self.calls) + 1}: {self._fault}") from None
                continue
            self._take(body)
            self._fault, self._ends, self._kept, self._state = None, 0, self._seek, self._outside
            return True
        self._seek = max(self._seek, len(self.text) - len(close) + 1)
        return False

    def _finish(self) -> None:
        if self._state == self._outside and not self._muted and self.text.startswith(self.dialect.open, self._seek):
            raise BadCall("unbalanced", f"call {len(self.calls) + 1} is not closed")
        if self._fault and self._state == self._inside:
            raise BadCall(self._fault.error_type, f"call {len(self.calls) + 1}: {self._fault}")
        super()._finish()
