"""Where a run's evidence was archived, and whether it was let go since. Stores before it archived nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Create `archives`, append-only."""
    op.create_table(
        "archives",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_archives_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_archives"),
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER archives_no_{verb.lower()} BEFORE {verb} ON archives "
                "BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER archives_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON archives "
            "FOR EACH STATEMENT EXECUTE FUNCTION qualgate_append_only()"
        )
        op.execute("ALTER TABLE archives ENABLE ALWAYS TRIGGER archives_append_only")


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
