"""The tables of runs that are handed to a pool. None is evidence: what a run found is in the tables of runs.

Times here are seconds since the epoch by the store's own clock (`leases.clock`): leases are counted with them.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Table

from qualgate.store.columns import Float, Integer, LargeBinary, String, Text, require
from qualgate.store.tables import metadata

queue = Table(  # one row, which whoever claims holds: claims come one after the other
    "queue",
    metadata,
    Column("queue_id", Integer, primary_key=True, autoincrement=False),
    Column("claims", Integer, nullable=False),
    Column("rescued", Integer, nullable=False),  # leases that ran out and were taken back
)

nodes = Table(  # who works for this store now
    "nodes",
    metadata,
    Column("node", String(200), primary_key=True),
    Column("program", String(64), nullable=False),  # its version of qualgate
    Column("seen_at", Float, nullable=False),
    Column("lease", Float, nullable=False),  # s, for which it claims
    Column("skew", Float, nullable=False),  # s, its own clock before the store's
)

submissions = Table(
    "submissions",
    metadata,
    Column("submission_id", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("priority", Integer, nullable=False),  # among its owner's; the highest first
    Column("status", String(16), nullable=False),  # queued, leased, done, cancelled, apart
    Column("name", Text, nullable=False),  # of the gate file
    Column("folder", Text, nullable=False),  # where that was, absolute
    Column("gate_file", Text, nullable=False),
    Column("options_json", Text, nullable=False),  # of `qualgate run`
    Column("needs_json", Text, nullable=False),  # folders and files a node must have: path → digest, "" where unknown
    Column("content", String(64), nullable=False),  # sha256 of all that was asked: equal ones do not run side by side
    Column("program", String(64), nullable=False),  # the version of qualgate that handed it over
    Column("submitted_at", Float, nullable=False),
    Column("taken_at", Float),  # this and the next three: of the newest claim
    Column("node", String(200)),
    Column("expires_at", Float),  # of the lease; of what is queued, of its pause after a death; else NULL
    Column("token", Integer, nullable=False),  # rises with every claim: an older one writes nothing more
    Column("deaths", Integer, nullable=False),  # of who was at it, as far as they count
    Column("run_id", String(64)),  # NULL until its first worker began
    Column("exit", Integer),  # of the run; NULL unless done
    Column("reason", Text, nullable=False),  # why it was given back last, set apart or cancelled
    Column("finished_at", Float),
    Index(None, "status"),
)

submission_files = Table(  # what a submission carries, until it has ended
    "submission_files",
    metadata,
    Column("submission_id", String(64), ForeignKey("submissions.submission_id"), primary_key=True),
    Column("path", String(1000), primary_key=True),  # absolute, where it was
    Column("sha256", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

refusals = Table(  # nodes that lack what a submission needs, and those where it died
    "refusals",
    metadata,
    Column("submission_id", String(64), ForeignKey("submissions.submission_id"), primary_key=True),
    Column("node", String(200), primary_key=True),
    Column("times", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

require(metadata)
