"""Faults on the wire, by whose they are: the user's, the machinery's or the case's."""

from __future__ import annotations

import json
from typing import Any

from qualgate.errors import InfrastructureError, UsageError
from qualgate.served.retries import LIMIT

ADDRESS = "`endpoint` is the API's address with its version, such as http://127.0.0.1:8000/v1"

LIMITS = (str(LIMIT), "rate_limit_exceeded", "rate_limit_error")  # how an error under the status 200 is called
UNREADABLE = "no whole answer"
UNLISTED = "Of a server that lists no models by their names, write `list_models: false` beside `endpoint`"


class WireFault(Exception):
    """The machinery's: what was sent back is no whole answer. It is asked again, and never counts as an answer.

    asked_wait: seconds that the server asked to be left alone, None where it did not say. cause: in a word or two, to
    be counted by: "status 503", "connection", "timeout", "an error under 200", or UNREADABLE. unanswered: it surely
    said no token. limit: the server wants to be left alone for a while, whoever asks.
    """

    def __init__(
        self,
        message: str,
        asked_wait: float | None = None,
        cause: str = UNREADABLE,
        *,
        unanswered: bool = False,
        limit: bool = False,
    ) -> None:
        super().__init__(message)
        self.asked_wait, self.cause, self.unanswered, self.limit = asked_wait, cause, unanswered, limit

    @property
    def of_form(self) -> bool:
        """Whether what came back cannot be read, which seldom passes."""
        return self.cause == UNREADABLE


def reported(fault: Any) -> WireFault:
    """What a server says in place of an answer, under the status 200."""
    limit = isinstance(fault, dict) and not {str(fault.get("code")), str(fault.get("type"))}.isdisjoint(LIMITS)
    said = f"it reports an error in place of an answer: {json.dumps(fault)}"
    return WireFault(said, cause="an error under 200", limit=limit)


class NotServed(UsageError):
    """The user's: the server says that it will not, and asked again it would say so again."""


class ModelGone(NotServed):
    """The server lists its models, and the one that is asked for is none of them."""


class RequestRefused(NotServed):
    """The request's own: the server reads it and refuses it, as a prompt that is longer than its context."""


class BudgetSpent(InfrastructureError):
    """What the run may still spend does not reach for the next request, which is not sent."""
