"""Send digests, and keep those that cannot be sent: they go out before the next one, in order.

Addresses and passwords are read from the environment when needed. No message contains them.
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
OF_A_MESSAGE = (400, 413, 422)  # HTTP status codes for a rejected body
Wait = Callable[[float], None]


class _NotSent(Exception):
    """A failed attempt. again: another attempt may succeed; alone: the target rejects this message, not others."""

    def __init__(self, why: str, *, again: bool, alone: bool = False) -> None:
        super().__init__(why)
        self.again, self.alone = again, alone


def targets_of(nightly: Nightly) -> dict[str, Hook | MailEntry]:
    """Return the file's targets: "slack", "webhook", and "mail:ADDRESS" for each owner, so that one refused address
    does not stop mail to the others."""
    entry = nightly.digest
    targets = {
        "slack": entry.slack,
        "webhook": entry.webhook,
        **{f"mail:{to}": entry.mail for to in recipients(nightly)},
    }
    return {name: target for name, target in targets.items() if target is not None}


def deliver(store: Store, nightly: Nightly, wait: Wait = time.sleep) -> tuple[nights.Digest, ...]:
    """Send undelivered digests, the oldest first; return those still undelivered. After a failure the target's other
    digests wait too, unless it rejected only that message."""
    targets = targets_of(nightly)
    failed: set[str] = set()
    for pending in nights.undelivered(store, nightly.name):
        if pending.target in failed:
            continue
        why, alone = "the nightly file no longer names it", False
        if pending.target in targets:
            why, alone = _sent(targets[pending.target], pending.target, pending.body, wait)
        if why and not alone:
            failed.add(pending.target)
        nights.note_attempt(store, pending, why)
    return nights.undelivered(store, nightly.name)


def recipients(nightly: Nightly) -> tuple[str, ...]:
    """Return the owners of the file and of its gates, each once."""
    of_gates = (owner for gate in nightly.gates.values() for owner in gate.owners or ())
    return tuple(dict.fromkeys((*nightly.owners, *of_gates)))


def gates_of(nightly: Nightly, target: str) -> frozenset[str] | None:
    """Return the gates that a mail target owns; None for all gates: owners of the file, and other targets."""
    kind, _, to = target.partition(":")
    if kind != "mail" or to in nightly.owners:
        return None
    return frozenset(name for name, gate in nightly.gates.items() if to in (gate.owners or ()))


def _sent(target: Hook | MailEntry, name: str, body: dict[str, Any], wait: Wait) -> tuple[str, bool]:
    """Send one digest; return (reason or "", whether the target rejects only this digest) after the last attempt."""
    pause = FIRST_WAIT
    for attempt in range(ATTEMPTS):
        try:
            if isinstance(target, MailEntry):
                _mail(target, body, name.removeprefix("mail:"))
            else:
                _post(target, digest.as_slack(body) if name == "slack" else body)
            return "", False
        except _NotSent as error:
            if not error.again or attempt == ATTEMPTS - 1:
                return str(error), error.alone
        wait(pause * random.uniform(0.5, 1.0))  # jitter, so that nights that failed together do not retry together
        pause *= 2
    raise AssertionError("the last attempt returns")


def _post(hook: Hook, shape: dict[str, Any]) -> None:
    """Post JSON to the hook's address. Raises _NotSent with a reason that does not repeat the address, which is a
    secret."""
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
    except urllib.error.URLError as error:  # the error's text may hold the address
        raise _NotSent(f"the server cannot be reached ({_kind(error.reason)})", again=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise _NotSent(f"the server cannot be reached ({_kind(error)})", again=True) from None
    except ValueError:  # a port or a host that no address can have
        raise _NotSent(f"{hook.url_env} holds no address that can be called", again=False) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the digest would go to an address that nobody configured."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Return None: the redirect counts as a failed attempt."""


def _mail(entry: MailEntry, body: dict[str, Any], to: str) -> None:
    """Send the digest by mail to one address. Raises _NotSent with a reason that does not repeat the password."""
    user = _from_environment(entry.user_env) if entry.user_env else ""
    password = _from_environment(entry.password_env) if entry.password_env else ""
    secure = ssl.create_default_context()
    try:
        message = EmailMessage()
        message["Subject"] = " ".join(f"qualgate: {body['word']}, {body['nightly']}"[:200].splitlines())
        message["From"], message["To"] = entry.sender, to
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=entry.sender.rpartition("@")[2])
        message.set_content("\n".join(digest.lines(body)) + "\n")
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
    except ValueError as error:  # the error's text may hold a part of the password
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
    """Return a line for each missing environment variable, to be reported when the night begins."""
    names = [
        name
        for target in dict.fromkeys(targets_of(nightly).values())
        for name in ((target.url_env,) if isinstance(target, Hook) else (target.user_env, target.password_env))
        if name
    ]
    return [f"the environment variable {name} is not set" for name in names if not os.environ.get(name, "").strip()]
