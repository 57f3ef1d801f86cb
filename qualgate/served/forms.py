"""Whether a server's answers are asked for by streams or whole, by what came of them: a fault is found once.

An answer that cannot be read, or is doubted (`doubt`), is asked for again whole. Where that is so of three cases in a
row, or a stream says otherwise than the same answer asked whole, all of the arm's are asked whole from there on, which
reports say. Where three cases in a row cannot be read, whole neither, the arm is asked no more.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from qualgate.errors import InfrastructureError
from qualgate.served.answer import Answer
from qualgate.served.doubt import EMPTY, MIXED, REARRANGED, Doubt, misput, otherwise, rearranged
from qualgate.served.faults import NotServed, WireFault

Body = Mapping[str, Any]
Answering = Callable[[Body], Awaitable[tuple[Answer, Doubt]]]  # what comes of a body, and why it is to be doubted
WHY = {
    MIXED: "pieces of its streams are of several answers, in answer after answer",
    EMPTY: "its streams lose what whole answers say, in answer after answer",
    REARRANGED: "pieces of its streams may come twice or in another order, in answer after answer",
}
# Of a server that is not at fault: its model repeats words, and each such stream would be asked whole again.
REPEATS = "two pieces in a row are alike in answer after answer, and whole answers show that none came twice"
ROW = 3  # cases in a row after which a fault is no accident


class Forms:
    """Of one arm's server. whole: why its answers are asked whole though they could be streamed; "": they are not.
    shown: foreign text as a message may hold it."""

    def __init__(self, whole: str, shown: Callable[[str], str]) -> None:
        self.whole, self._ended, self._shown = whole, "", shown
        self._empty = 0  # answers that say nothing, whole neither
        self._spoilt = False  # whether a whole answer showed that pieces of a stream came twice or in another order
        self._row = 0  # cases since the last one that was answered at once
        self._streams_alone = False  # it refuses to answer whole
        self._checked: dict[str, Answer] = {}  # until they are asked for

    def once(self, answering: Answering, body: Body, enough: int = ROW) -> Callable[[], Awaitable[Answer]]:
        """One try at an answer, to be called again after a WireFault. enough: cases in a row after which all are asked
        whole."""
        faults = list[WireFault]()

        async def tried() -> Answer:
            if self._ended:
                raise InfrastructureError(self._ended)
            streams = bool(body.get("stream")) and not self.whole
            try:
                if streams and len(faults) % 2 and (found := await self._whole(answering, body)) is not None:
                    said = self._shown(str(faults[0]))
                    self._row_ends(enough, f"its streams cannot be read, and whole answers can ({said})")
                    return found
                found, doubt = await answering(body if streams else unstreamed(body))
            except WireFault as fault:
                if fault.of_form:
                    self._row += not faults
                    faults.append(fault)
                raise
            if streams and doubt and self._is_doubted(doubt):
                return await self._instead(answering, body, found, enough, doubt)
            if not faults:
                self._row = 0
            return found

        return tried

    async def _whole(self, answering: Answering, body: Body) -> Answer | None:
        """None where it answers by streams alone."""
        if self._streams_alone:
            return None
        try:
            return (await answering(unstreamed(body)))[0]
        except NotServed:
            self._streams_alone = True
            return None

    def _is_doubted(self, doubt: Doubt) -> bool:
        return doubt != EMPTY or self._empty < ROW

    async def _instead(self, answering: Answering, body: Body, streamed: Answer, enough: int, doubt: Doubt) -> Answer:
        """Of a stream that is doubted, what it or the whole answer says. WireFault where it is of several answers, and
        there is no whole one."""
        whole = await self._whole(answering, body)
        if whole is None:
            self._row += 1
            if doubt == MIXED:
                raise WireFault("pieces of its stream have the ids of several answers")
            return streamed
        if doubt == EMPTY and not (whole.text.strip() or whole.calls):
            self._empty += 1  # the model's own, as it seems
            return streamed
        self._row += 1
        other = doubt != REARRANGED or rearranged(streamed.said, whole.said)
        self._spoilt = self._spoilt or other
        self._row_ends(enough if other else ROW, WHY[doubt] if self._spoilt else REPEATS)
        return whole if other else streamed

    def _row_ends(self, enough: int, why: str) -> None:
        if self._row >= enough and not self.whole:
            self.whole = why

    def given_up(self, fault: WireFault) -> str:
        """What a message says more of a case that could not be read, however often it was asked."""
        if not fault.of_form:
            return ""
        more = "" if self.whole or self._streams_alone else " A whole answer (`stream: false`) was asked for too."
        if self._row >= ROW:
            said = self._shown(str(fault))
            self._ended = f"{ROW} cases in a row could not be read, so the others were not asked. {said}.{more}"
        return more

    async def check(
        self, streaming: Callable[[], Awaitable[Answer]], whole: Callable[[], Awaitable[Answer]], body: Body, of: str
    ) -> Answer:
        """The answer to a case that is asked first, and then not again: its stream is held against the same asked
        whole, and where they differ by more than the server's own noise, the whole one is it. of: the case, "" of none.
        """
        found = await self._compared(streaming, whole, of or "a fixed question")
        if of:
            self._checked[_key(body, of)] = found
        return found

    def checked(self, body: Body, of: str) -> Answer | None:
        """What `check` found of a case, once."""
        return self._checked.pop(_key(body, of), None) if self._checked else None

    async def _compared(
        self, streaming: Callable[[], Awaitable[Answer]], whole: Callable[[], Awaitable[Answer]], of: str
    ) -> Answer:
        streamed = await streaming()
        if self.whole or self._streams_alone or streamed.pieces < 2 or streamed.token_ids is not None:
            return streamed
        try:
            found = await whole()
            differs = otherwise(streamed.said[1:], found.said[1:])
            if not differs:
                return streamed
            if not misput(streamed.said[1:], found.said[1:]):
                if otherwise(found.said[1:], (await whole()).said[1:]):
                    return streamed  # it does not say the same twice
                if otherwise(streamed.said[1:], (await streaming()).said[1:]):
                    return streamed
        except (InfrastructureError, NotServed):  # it answers by streams alone
            return streamed
        self.whole = f"its stream says otherwise than the same answer asked whole ({differs}; {of})"
        return found


def unstreamed(body: Body) -> Body:
    """The same question, for a whole answer."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _key(body: Body, of: str) -> str:
    return json.dumps([of, body], sort_keys=True)
