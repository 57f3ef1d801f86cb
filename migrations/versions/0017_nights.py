"""Nights of a nightly file, and digests that are to be sent. Stores before it have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Create `nights`, append-only, and `digests`."""
    op.create_table(
        "nights",
        sa.Column("night_id", sa.Integer(), nullable=False),
        sa.Column("nightly", sa.String(length=200), nullable=False),
        sa.Column("gate", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("due_at", sa.String(length=32), nullable=False),
        sa.Column("began_at", sa.String(length=32), nullable=False),
        sa.Column("finished_at", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=64)),
        sa.Column("repeated", sa.Boolean(), nullable=False),
        sa.Column("exit", sa.Integer(), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_nights_run_id_runs"),
        sa.PrimaryKeyConstraint("night_id", name="pk_nights"),
    )
    op.create_index("ix_nights_nightly_gate_night_id", "nights", ["nightly", "gate", "night_id"])
    op.create_table(
        "digests",
        sa.Column("digest_id", sa.Integer(), nullable=False),
        sa.Column("nightly", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=320), nullable=False),
        sa.Column("last_night", sa.Integer(), nullable=False),
        sa.Column("body_json", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("delivered_at", sa.String(length=32)),
        sa.PrimaryKeyConstraint("digest_id", name="pk_digests"),
    )
    op.create_index("ix_digests_delivered_at", "digests", ["delivered_at"])
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER nights_no_{verb.lower()} BEFORE {verb} ON nights "
                "BEGIN SELECT RAISE(ABORT, 'nights is append-only'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER nights_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON nights "
            "FOR EACH STATEMENT EXECUTE FUNCTION qualgate_append_only()"
        )
        op.execute("ALTER TABLE nights ENABLE ALWAYS TRIGGER nights_append_only")


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
