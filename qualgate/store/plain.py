"""Convert frozen records to the plain JSON of a column, and back.

The text is ASCII: a lone surrogate or a NUL in a case stays an escape, which every database can hold.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Evalset, Policy, Spent, Verdict
from qualgate.store.typed import read

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def to_json(value: Any) -> str:
    """Return the JSON of plain values or a record."""
    return _encode(asdict(value) if hasattr(value, "__dataclass_fields__") else value)


def policy_to_json(policy: Policy) -> str:
    """Return the policy's JSON without line numbers and prices, which must not make another policy or verdict."""
    body: dict[str, Any] = asdict(policy)
    if policy.judge is not None:
        body["judge"]["served"]["price"] = None  # it decides nothing
    for rule in body["rules"]:
        del rule["line"]
        if not rule["against"]:  # as it was before rules could be against another arm
            del rule["against"]
    return to_json(body)


def arm_spec(text: str) -> ArmSpec:
    """Return an arm's specification."""
    return read(ArmSpec, text)


def identity(text: str | None) -> ArmIdentity | None:
    """Return an arm's identity; None if nothing was recorded."""
    return None if text is None else read(ArmIdentity, text)


def evalset(row: Any) -> Evalset:
    """Return an evalset without its cases. row: all of its columns."""
    return Evalset(
        name=row.name,
        version=row.version,
        sha256=row.sha256,
        metrics=names(row.metrics_json),
        lenient=names(row.lenient_json),
        normalizers=names(row.normalizers_json),
        description=row.description,
    )


def names(text: str) -> tuple[str, ...]:
    """Return names of metrics, modes or normalizers."""
    return read(tuple[str, ...], text)


def footprint(text: str | None) -> ArmFootprint | None:
    """Return an arm's footprint; None if nothing was recorded."""
    return None if text is None else read(ArmFootprint, text)


def spent(text: str | None) -> Spent | None:
    """Return the spending; None if nothing was recorded."""
    return None if text is None else read(Spent, text)


def policy(text: str) -> Policy:
    """Return a policy."""
    return read(Policy, text)


def verdict(text: str) -> Verdict:
    """Return a verdict on one variant."""
    return read(Verdict, text)


def now() -> str:
    """Return the current UTC time in the store's format."""
    return stamp(datetime.now(UTC))


def stamp(time: datetime) -> str:
    """Return a time with a zone in the store's format, whose order is that of the times."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def storable(text: str) -> str:
    """Return the text with lone surrogates escaped as `\\udc80`: UTF-8, and so a database, cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
