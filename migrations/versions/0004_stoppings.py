"""Why a variant's list of units was not finished: at which look its verdict was settled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create `stoppings`."""
    op.create_table(
        "stoppings",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("look", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("word", sa.String(length=16), nullable=False),
        sa.Column("order_sha256", sa.String(length=64), nullable=False),
        sa.Column("policy_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "variant"], ["arms.run_id", "arms.name"], name="fk_stoppings_run_id_variant_arms"
        ),
        sa.PrimaryKeyConstraint("run_id", "variant", name="pk_stoppings"),
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER stoppings_no_{verb.lower()} BEFORE {verb} ON stoppings "
                "BEGIN SELECT RAISE(ABORT, 'stoppings is append-only'); END"
            )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
