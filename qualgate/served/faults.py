"""What can go wrong on the wire, told by whose it is: the user's, the machinery's or the case's."""

from __future__ import annotations

from qualgate.errors import InfrastructureError, UsageError

ADDRESS = "`endpoint` is the API's address with its version, such as http://127.0.0.1:8000/v1"


class WireFault(Exception):
    """The machinery's: what was sent back is no whole answer. It is asked again, and never counts as an answer.

    asked_wait: seconds that the server asked to be left alone, None where it did not say. cause: in a word or two, to
    be counted by: "status 503", "connection", "timeout", or "no whole answer". unanswered: it surely said no token.
    """

    def __init__(
        self,
        message: str,
        asked_wait: float | None = None,
        cause: str = "no whole answer",
        *,
        unanswered: bool = False,
    ) -> None:
        super().__init__(message)
        self.asked_wait, self.cause, self.unanswered = asked_wait, cause, unanswered


class NotServed(UsageError):
    """The user's: the server says that it will not, and asked again it would say so again."""


class RequestRefused(NotServed):
    """The request's own: the server reads it and refuses it, as a prompt that is longer than its context."""


class BudgetSpent(InfrastructureError):
    """What the run may still spend does not reach for the next request, which is not sent."""


class NotRecorded(InfrastructureError):
    """The recording that a run is replayed from does not hold what is asked; no server is asked in its place."""
