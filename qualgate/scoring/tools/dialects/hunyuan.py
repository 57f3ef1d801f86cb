"""Hunyuan's calls: pairs of keys and values in a call, and calls in a frame.

Of some checkpoints every tag of calls and thoughts has one more part, `<tool_call:6124c78e>`, which keeps it apart from
the same tag in prose. Which part that is, its tokenizer knows; an answer shows it by the first tag that has one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from qualgate.scoring.tools.dialects.call import Call
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM
from qualgate.scoring.tools.dialects.stream import Dialect, Stream
from qualgate.scoring.tools.dialects.tagged import reader, writer

MOST = 64  # characters of a tag that shows the part
# A thought's tag without a part is no evidence: it may stand in prose.
_FIRST = re.compile(r"<tool_calls(:[^\s<>]{1,40})?>|</?think(:[^\s<>]{1,40})>")


class Parts(Stream):
    """A stream that is read once the answer shows the extra part of its tags, or ends without one."""

    _held: str | None = ""

    def feed(self, piece: str) -> tuple[Call, ...]:
        """Return the calls that `piece` completes."""
        if self._held is None:
            return super().feed(piece)
        before = max(0, len(self._held) - MOST)
        self._held += piece
        match = _FIRST.search(self._held, before)
        return self._read_on(match[1] or match[2] or "") if match else ()

    def close(self) -> tuple[Call, ...]:
        """End the text; return the calls that its end completes."""
        completed = () if self._held is None else self._read_on("")
        return (*completed, *super().close())

    def _read_on(self, part: str) -> tuple[Call, ...]:
        buffered, self._held = self._held or "", None
        self.dialect = hunyuan(self.dialect.name, part)
        return super().feed(buffered)


@lru_cache(maxsize=64)
def hunyuan(name: str, part: str = "") -> Dialect:
    """Return the dialect `hunyuan_v3` or `hy_v4` with this part in its tags."""

    def tag(word: str) -> tuple[str, str]:
        return f"<{word}{part}>", f"</{word}{part}>"

    third = name == "hunyuan_v3"
    frame, call, key, value = tag("tool_calls"), tag("tool_call"), tag("arg_key"), tag("arg_value")
    separator = f"<tool_sep{part}>"
    # A key holds no tag of its own, so that one that is not closed is not looked for again from each that follows.
    opened = rf"\s*{re.escape(key[0])}(?P<key>(?:(?!</?arg_key{re.escape(part)}>).)*+){re.escape(key[1])}"
    between, line = (r"\s*", "\n") if third else ("", "")
    pair = rf"{opened}{between}{re.escape(value[0])}(?P<value>.*?){re.escape(value[1])}"
    head = rf"\s*(?P<name>[^<\n]+){re.escape(separator)}" if third else rf"\s*(?P<name>[^<\s]+)\s*(?={key[0]}|\Z)"
    stray = (*key, *value, *((separator,) if third else ()))
    return Dialect(
        name=name,
        source=SGLANG + "hunyuan_detector.py; " + VLLM + "tool_parsers/hy_v3_tool_parser.py"
        if third
        else VLLM + "tool_parsers/hy_v4_tool_parser.py",
        frame=frame,
        open=call[:1],
        close=call[1],
        stray=stray,
        thinks=tag("think"),
        read=reader(head, "", pair, guess=third),
        scanner=Parts,
        write=writer(
            f"{call[0]}{{key}}{separator}\n" if third else f"{call[0]}{{key}}",
            f"{key[0]}{{key}}{key[1]}{line}{value[0]}{{value}}{value[1]}\n",
            call[1],
            (*call, *frame, *stray),
            around=(f"{frame[0]}\n", f"\n{frame[1]}"),
            named=".*" if third else r"[^<\s]+",
        ),
    )


HUNYUAN_V3, HY_V4 = hunyuan("hunyuan_v3"), hunyuan("hy_v4")
