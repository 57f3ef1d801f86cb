"""The store's own clock, which all machines that share the store agree on."""

from __future__ import annotations

from sqlalchemy import Connection, text

_CLOCKS = {
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
}


def clock(connection: Connection) -> float:
    """Return the time in s since the epoch."""
    return connection.execute(text(_CLOCKS[connection.dialect.name])).scalar_one()
