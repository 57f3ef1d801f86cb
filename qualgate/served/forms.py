"""Choose whether a server's answers are requested by streams or whole, from earlier replies.

An answer that is unreadable or doubtful (`doubt`) is requested again whole. After three such cases in a row, or if a
stream differs from the same answer requested whole, all of the arm's are requested whole, which reports mention. After
three cases in a row that are unreadable even whole, the arm gets no more requests.
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
UNREAD = "its streams cannot be read, and whole answers can"
ROW = 3  # cases in a row after which a fault is no accident


def proves_streams_wrong(why: str) -> bool:
    """Return whether the reason for which answers are requested whole casts doubt on streams that looked right. why: as
    of `Forms.whole`."""
    return bool(why) and why != REPEATS and not why.startswith(UNREAD)


class Forms:
    """The form of requests to one arm's server. whole: why its answers are requested whole though they could be
    streamed, "" if they are not. shown: makes foreign text fit for a message."""

    def __init__(self, whole: str, shown: Callable[[str], str]) -> None:
        self.whole, self._ended, self._shown = whole, "", shown
        self._empty = 0  # answers that say nothing, whole neither
        self._spoilt = False  # whether a whole answer showed that pieces of a stream came twice or in another order
        self._row = 0  # cases since the last one that was answered at once
        self._streams_alone = False  # it refuses to answer whole
        self._checked: dict[str, Answer] = {}  # until they are asked for

    def once(self, answering: Answering, body: Body, enough: int = ROW) -> Callable[[], Awaitable[Answer]]:
        """Return a try at an answer, to be called again after a WireFault. enough: cases in a row after which all are
        requested whole."""
        faults = list[WireFault]()

        async def tried() -> Answer:
            """Request the answer once; whole in every second try, if its stream was unreadable.

            WireFault asks for a retry.
            """
            if self._ended:
                raise InfrastructureError(self._ended)
            streams = bool(body.get("stream")) and not self.whole
            try:
                if streams and len(faults) % 2 and (answer := await self._whole(answering, body)) is not None:
                    reason = self._shown(str(faults[0]))
                    self._row_ends(enough, f"{UNREAD} ({reason})")
                    return answer
                answer, doubt = await answering(body if streams else unstreamed(body))
            except WireFault as fault:
                if fault.of_form:
                    self._row += not faults
                    faults.append(fault)
                raise
            if streams and doubt and self._is_doubted(doubt):
                return await self._instead(answering, body, answer, enough, doubt)
            if not faults:
                self._row = 0
            is_doubtful = streams and answer.pieces > 1 and answer.token_ids is None
            if is_doubtful and proves_streams_wrong(self.whole):  # by another, while this one was under way
                if (instead := await self._whole(answering, body)) is None:
                    raise WireFault(f"its streams are wrong ({self.whole}), and it gives no whole answer")
                return instead
            return answer

        return tried

    async def _whole(self, answering: Answering, body: Body) -> Answer | None:
        """Request an answer whole; None if the server answers only by streams."""
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
        """Return a doubtful stream's answer or the whole one. WireFault if the stream mixes several answers, and there
        is no whole one."""
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
        is_wrong = doubt != REARRANGED or rearranged(streamed.content, whole.content)
        self._spoilt = self._spoilt or is_wrong
        self._row_ends(enough if is_wrong else ROW, WHY[doubt] if self._spoilt else REPEATS)
        return whole if is_wrong else streamed

    def _row_ends(self, enough: int, why: str) -> None:
        if self._row >= enough and not self.whole:
            self.whole = why

    def given_up(self, fault: WireFault) -> str:
        """Return the end of a message about a case that was unreadable in all tries."""
        if not fault.of_form:
            return ""
        note = "" if self.whole or self._streams_alone else " A whole answer (`stream: false`) was asked for too."
        if self._row >= ROW:
            reason = self._shown(str(fault))
            self._ended = f"{ROW} cases in a row could not be read, so the others were not asked. {reason}.{note}"
        return note

    async def check(
        self, streaming: Callable[[], Awaitable[Answer]], whole: Callable[[], Awaitable[Answer]], body: Body, of: str
    ) -> Answer:
        """Return the answer to a case that is requested before the others. Its stream is compared with the whole
        answer, which counts if they differ by more than the server's own noise. of: the case, "" for none.
        """
        answer = await self._compared(streaming, whole, of or "a fixed question")
        if of:
            self._checked[_key(body, of)] = answer
        return answer

    def checked(self, body: Body, of: str) -> Answer | None:
        """Return the answer that `check` had for a case, once."""
        return self._checked.pop(_key(body, of), None) if self._checked else None

    async def _compared(
        self, streaming: Callable[[], Awaitable[Answer]], whole: Callable[[], Awaitable[Answer]], of: str
    ) -> Answer:
        """Return a case's answer by a stream, or the whole one if they differ by more than the server's own noise.

        The whole one then counts for all cases. of: the case, for the message. An answer with token ids is not
        compared.
        """
        streamed = await streaming()
        if self.whole or self._streams_alone or streamed.pieces < 2 or streamed.token_ids is not None:
            return streamed
        try:
            whole_answer = await whole()
            differs = otherwise(streamed.content[1:], whole_answer.content[1:])
            if not differs:
                return streamed
            if not misput(streamed.content[1:], whole_answer.content[1:]):
                if otherwise(whole_answer.content[1:], (await whole()).content[1:]):
                    return streamed  # it does not say the same twice
                if otherwise(streamed.content[1:], (await streaming()).content[1:]):
                    return streamed
        except (InfrastructureError, NotServed):  # it answers by streams alone
            return streamed
        self.whole = f"its stream says otherwise than the same answer asked whole ({differs}; {of})"
        return whole_answer


def unstreamed(body: Body) -> Body:
    """Return the same request without a stream."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _key(body: Body, of: str) -> str:
    return json.dumps([of, body], sort_keys=True)
