"""Frozen records as the plain JSON kept in a column, and back.

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
    """Plain values, or one of the records of this module."""
    return _encode(asdict(value) if hasattr(value, "__dataclass_fields__") else value)


def policy_to_json(policy: Policy) -> str:
    """Without lines and prices: a comment added to the gate file is not another policy, nor a new verdict."""
    body = asdict(policy)
    if policy.judge is not None:
        body["judge"]["served"]["price"] = None  # which decides nothing
    for rule in body["rules"]:
        del rule["line"]
    return to_json(body)


def arm_spec(text: str) -> ArmSpec:
    """What an arm was asked to be."""
    return read(ArmSpec, text)


def identity(text: str | None) -> ArmIdentity | None:
    """None where nothing was recorded."""
    return None if text is None else read(ArmIdentity, text)


def evalset(row: Any) -> Evalset:
    """Without its cases. `row`: all of an evalset's columns."""
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
    """Of metrics, modes, normalizers."""
    return read(tuple[str, ...], text)


def footprint(text: str | None) -> ArmFootprint | None:
    """None where nothing was recorded."""
    return None if text is None else read(ArmFootprint, text)


def spent(text: str | None) -> Spent | None:
    """None where nothing was recorded."""
    return None if text is None else read(Spent, text)


def policy(text: str) -> Policy:
    """By which a run is judged."""
    return read(Policy, text)


def verdict(text: str) -> Verdict:
    """On one variant."""
    return read(Verdict, text)


def now() -> str:
    """UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def storable(text: str) -> str:
    """`text` with lone surrogates written out as `\\udc80`: UTF-8, and so a database, cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
