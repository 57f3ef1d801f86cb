"""What asking a run's judge came to, NULL of all runs before it; and loads that rules judged, none in stores before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add a column to `runs`, and create `loads`, append-only."""
    op.add_column("runs", sa.Column("judging_json", sa.Text()))
    op.create_table(
        "loads",
        sa.Column("load_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("gate_name", sa.Text(), nullable=False),
        sa.Column("gate_file", sa.Text(), nullable=False),
        sa.Column("policy_sha256", sa.String(length=64), nullable=False),
        sa.Column("exit", sa.Integer(), nullable=False),
        sa.Column("body_json", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("load_id", name="pk_loads"),
    )
    op.create_index("ix_loads_created_at", "loads", ["created_at"])
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER loads_no_{verb.lower()} BEFORE {verb} ON loads "
                "BEGIN SELECT RAISE(ABORT, 'loads is append-only'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER loads_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON loads "
            "FOR EACH STATEMENT EXECUTE FUNCTION qualgate_append_only()"
        )
        op.execute("ALTER TABLE loads ENABLE ALWAYS TRIGGER loads_append_only")


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
