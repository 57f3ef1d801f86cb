"""Tables of nights: results of each gate file and model, and digests to deliver."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Table

from qualgate.store.columns import Boolean, Integer, String, Text, require
from qualgate.store.tables import metadata

nights = Table(  # append-only
    "nights",
    metadata,
    Column("night_id", Integer, primary_key=True),
    Column("nightly", String(200), nullable=False),  # the file's name: several may keep their nights in one store
    Column("gate", String(64), nullable=False),  # its name in the nightly file
    Column("model", Text, nullable=False),  # the folder that took the variants' place; "" where none did
    Column("due_at", String(32), nullable=False),
    Column("began_at", String(32), nullable=False),
    Column("finished_at", String(32), nullable=False),
    Column("run_id", String(64), ForeignKey("runs.run_id")),  # NULL without a run; `said` gives the reason
    Column("repeated", Boolean, nullable=False),  # nothing had changed since that run
    Column("exit", Integer, nullable=False),
    Column("said", Text, nullable=False),
    Index(None, "nightly", "gate", "night_id"),
)

digests = Table(
    "digests",
    metadata,
    Column("digest_id", Integer, primary_key=True),
    Column("nightly", String(200), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("target", String(320), nullable=False),  # slack, webhook, mail:ADDRESS, no secret; "" nobody
    Column("last_night", Integer, nullable=False),  # the digest covers the nights up to this one; 0: none
    Column("body_json", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),  # why the last attempt failed
    Column("delivered_at", String(32)),  # NULL: still to be sent
    Index(None, "delivered_at"),
)

require(metadata)
