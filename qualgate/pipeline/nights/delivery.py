"""Sends digests, and keeps what cannot be sent: it goes out before the next, in order.

Addresses and passwords are read from the environment where they are needed. No message names them.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import smtplib
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from qualgate.config.nightly import Hook, MailEntry, Nightly
from qualgate.pipeline.nights import digest
from qualgate.store import nights
from qualgate.store.database import Store

ATTEMPTS, FIRST_WAIT, TIMEOUT = 4, 1.0, 15.0  # s; each wait is up to twice the one before
OF_A_MESSAGE = (400, 413, 422)  # what HTTP says of a body that is not taken
Wait = Callable[[float], None]


class _NotSent(Exception):
    """Why; `again` where another attempt may do better, `alone` where it is this message that is not taken."""

    def __init__(self, why: str, *, again: bool, alone: bool = False) -> None:
        super().__init__(why)
        self.again, self.alone = again, alone


def targets_of(nightly: Nightly) -> dict[str, Hook | MailEntry]:
    """Those that the file names: "slack", "webhook", and "mail:ADDRESS" of each owner, so that one whose mail is
    refused keeps none from the others."""
    entry = nightly.digest
    every = {"slack": entry.slack, "webhook": entry.webhook, **{f"mail:{to}": entry.mail for to in recipients(nightly)}}
    return {name: one for name, one in every.items() if one is not None}


def deliver(store: Store, nightly: Nightly, wait: Wait = time.sleep) -> tuple[nights.Digest, ...]:
    """Send what waits, the oldest first. Returns what waits still, with the reason; a target that failed once is not
    tried with the others that wait for it, unless it was the message that it does not take."""
    known = targets_of(nightly)
    failed: set[str] = set()
    for one in nights.undelivered(store, nightly.name):
        if one.target in failed:
            continue
        why, alone = "the nightly file no longer names it", False
        if one.target in known:
            why, alone = _sent(known[one.target], one.target, one.body, wait)
        if why and not alone:
            failed.add(one.target)
        nights.note_attempt(store, one, why)
    return nights.undelivered(store, nightly.name)


def recipients(nightly: Nightly) -> tuple[str, ...]:
    """Owners of the file and of its gates, each once."""
    of_gates = (owner for gate in nightly.gates.values() for owner in gate.owners or ())
    return tuple(dict.fromkeys((*nightly.owners, *of_gates)))


def gates_of(nightly: Nightly, target: str) -> frozenset[str] | None:
    """Those that who is mailed owns; None for all, of which everybody else is told."""
    kind, _, to = target.partition(":")
    if kind != "mail" or to in nightly.owners:
        return None
    return frozenset(name for name, gate in nightly.gates.items() if to in (gate.owners or ()))


def _sent(target: Hook | MailEntry, name: str, said: dict[str, Any], wait: Wait) -> tuple[str, bool]:
    """ "" once it is; else why not, after the last attempt, and whether others to the same target may fare better."""
    pause = FIRST_WAIT
    for attempt in range(ATTEMPTS):
        try:
            if isinstance(target, MailEntry):
                _mail(target, said, name.removeprefix("mail:"))
            else:
                _post(target, digest.as_slack(said) if name == "slack" else said)
            return "", False
        except _NotSent as error:
            if not error.again or attempt == ATTEMPTS - 1:
                return str(error), error.alone
        wait(pause * random.uniform(0.5, 1.0))  # so that many nights that failed together do not come back together
        pause *= 2
    raise AssertionError("the last attempt returns")


def _post(hook: Hook, shape: dict[str, Any]) -> None:
    url = _from_environment(hook.url_env)
    headers = {"Content-Type": "application/json", "User-Agent": "qualgate"}
    try:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise _NotSent(f"{hook.url_env} holds no http or https address", again=False)
        request = urllib.request.Request(url, json.dumps(shape).encode(), headers, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as reply:
            reply.read(1_000)
    except urllib.error.HTTPError as error:
        again = error.code == 429 or error.code >= 500
        raise _NotSent(f"the server answered {error.code}", again=again, alone=error.code in OF_A_MESSAGE) from None
    except urllib.error.URLError as error:  # its own text may hold the address
        raise _NotSent(f"the server cannot be reached ({_kind(error.reason)})", again=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise _NotSent(f"the server cannot be reached ({_kind(error)})", again=True) from None
    except ValueError:  # a port or a host that no address can have
        raise _NotSent(f"{hook.url_env} holds no address that can be called", again=False) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Where a secret address leads to is not followed: the digest would go to whoever answers there."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """A redirect is an answer like any other that is no success."""


def _mail(entry: MailEntry, said: dict[str, Any], to: str) -> None:
    user = _from_environment(entry.user_env) if entry.user_env else ""
    password = _from_environment(entry.password_env) if entry.password_env else ""
    secure = ssl.create_default_context()
    try:
        message = EmailMessage()
        message["Subject"] = " ".join(f"qualgate: {said['word']}, {said['nightly']}"[:200].splitlines())
        message["From"], message["To"] = entry.sender, to
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=entry.sender.rpartition("@")[2])
        message.set_content("\n".join(digest.lines(said)) + "\n")
        if entry.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(entry.server, entry.port, timeout=TIMEOUT, context=secure)
        else:
            server = smtplib.SMTP(entry.server, entry.port, timeout=TIMEOUT)
        with server:
            if entry.security == "starttls":
                server.starttls(context=secure)
            if user:
                server.login(user, password)
            server.send_message(message)
    except smtplib.SMTPAuthenticationError as error:
        raise _NotSent(f"the mail server does not take the login ({error.smtp_code})", again=False) from None
    except smtplib.SMTPResponseException as error:
        again, alone = 400 <= error.smtp_code < 500, isinstance(error, smtplib.SMTPDataError)
        raise _NotSent(f"the mail server answered {error.smtp_code}", again=again, alone=alone) from None
    except smtplib.SMTPRecipientsRefused:
        raise _NotSent("the mail server takes no mail for this address", again=False) from None
    except (OSError, smtplib.SMTPException) as error:
        raise _NotSent(f"the mail server cannot be used ({_kind(error)})", again=True) from None
    except ValueError as error:  # its own text may hold a letter of the password
        raise _NotSent(
            f"the mail, its login or its addresses cannot be written ({_kind(error)})", again=False
        ) from None


def _from_environment(name: str) -> str:
    if not (value := os.environ.get(name, "").strip()):
        raise _NotSent(f"the environment variable {name} is not set", again=False)
    return value


def _kind(error: object) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def check_targets(nightly: Nightly) -> list[str]:
    """What of the environment is missing, a line each: told when the night begins, not when it ends."""
    names = [
        name
        for one in dict.fromkeys(targets_of(nightly).values())
        for name in ((one.url_env,) if isinstance(one, Hook) else (one.user_env, one.password_env))
        if name
    ]
    return [f"the environment variable {name} is not set" for name in names if not os.environ.get(name, "").strip()]
