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
    """A reply that is no whole answer, by the machinery's fault. It is requested again, and never counts as an answer.

    asked_wait: seconds that the server asked to wait, None if it did not, inf if no wait helps. cause: in a word or
    two, for counting: "status 503", "connection", "timeout", "an error under 200", or UNREADABLE. unanswered: certainly
    no token was generated. limit: the server refuses all requests for a while.
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
        """Whether the reply cannot be read, which seldom passes."""
        return self.cause == UNREADABLE


def reported(fault: Any) -> WireFault:
    """Return the fault that a server reports in place of an answer, under the status 200."""
    limit = isinstance(fault, dict) and not {str(fault.get("code")), str(fault.get("type"))}.isdisjoint(LIMITS)
    message = f"it reports an error in place of an answer: {json.dumps(fault)}"
    return WireFault(message, cause="an error under 200", limit=limit)


class NotServed(UsageError):
    """A refusal by the user's fault, which a retry would not change."""


class ModelGone(NotServed):
    """The server lists its models, and not the requested one."""


class RequestRefused(NotServed):
    """A refusal by the request's own fault, such as a prompt longer than the server's context."""


class LimitLasts(InfrastructureError):
    """A limit that lasts longer than patience: the server gets no more such requests in this run."""


class BudgetSpent(InfrastructureError):
    """The budget does not suffice for the next request, which is not sent."""
