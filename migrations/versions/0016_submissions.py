"""Runs that are handed to a pool: the queue, its nodes, submissions with the files they carry. Stores before it have
none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the five tables."""
    op.create_table(
        "queue",
        sa.Column("queue_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("rescued", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", name="pk_queue"),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column("program", sa.String(length=64), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("lease", sa.Float(), nullable=False),
        sa.Column("skew", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_nodes"),
    )
    op.create_table(
        "submissions",
        sa.Column("submission_id", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("gate_file", sa.Text(), nullable=False),
        sa.Column("options_json", sa.Text(), nullable=False),
        sa.Column("needs_json", sa.Text(), nullable=False),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("program", sa.String(length=64), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("taken_at", sa.Float()),
        sa.Column("node", sa.String(length=200)),
        sa.Column("expires_at", sa.Float()),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64)),
        sa.Column("exit", sa.Integer()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.Float()),
        sa.PrimaryKeyConstraint("submission_id", name="pk_submissions"),
    )
    op.create_index("ix_submissions_status", "submissions", ["status"])
    _of_a_submission(
        "submission_files",
        sa.Column("path", sa.String(length=1000), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    _of_a_submission(
        "refusals",
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
    )


def _of_a_submission(name: str, key: sa.Column, *columns: sa.Column) -> None:
    op.create_table(
        name,
        sa.Column("submission_id", sa.String(length=64), nullable=False),
        key,
        *columns,
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.submission_id"], name=f"fk_{name}_submission_id_submissions"
        ),
        sa.PrimaryKeyConstraint("submission_id", key.name, name=f"pk_{name}"),
    )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
