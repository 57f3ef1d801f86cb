"""What a judge replied to pairs of answers, a row an order. Stores before it have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create `judgements`, append-only."""
    op.create_table(
        "judgements",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("judge", sa.String(length=64), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("evalset", sa.String(length=200), nullable=False),
        sa.Column("case_id", sa.String(length=400), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("swapped", sa.Integer(), nullable=False),
        sa.Column("asked", sa.String(length=64), nullable=False),
        sa.Column("reply", sa.Text()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("served", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_judgements_run_id_runs"),
        sa.PrimaryKeyConstraint(
            "run_id", "judge", "variant", "evalset", "case_id", "repeat", "swapped", name="pk_judgements"
        ),
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER judgements_no_{verb.lower()} BEFORE {verb} ON judgements "
                "BEGIN SELECT RAISE(ABORT, 'judgements is append-only'); END"
            )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
