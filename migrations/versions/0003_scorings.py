"""Scores of a later scorer version beside those that were recorded, which stay as they are: scoring 0."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create `scorings`, and key `scores` by scoring, too."""
    op.create_table(
        "scorings",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("scorers_json", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_scorings_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_scorings"),
    )
    # SQLite copies the table; nothing refers to it, so no row elsewhere can be lost with the old one.
    with op.batch_alter_table("scores") as batch:
        batch.add_column(sa.Column("scoring", sa.Integer(), nullable=False, server_default="0"))
        batch.drop_constraint("pk_scores", type_="primary")
        batch.create_primary_key("pk_scores", ["unit_id", "metric", "scoring"])
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER scorings_no_{verb.lower()} BEFORE {verb} ON scorings "
                "BEGIN SELECT RAISE(ABORT, 'scorings is append-only'); END"
            )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
