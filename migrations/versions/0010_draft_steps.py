"""What became of each draft of an arm that speculates, a row a pass and level. Stores before it have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create `draft_steps`."""
    op.create_table(
        "draft_steps",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("proposed", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("rejected", sa.Integer(), nullable=False),
        sa.Column("unverified", sa.Integer(), nullable=False),
        sa.Column("proposer", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["units.unit_id"], name="fk_draft_steps_unit_id_units"),
        sa.PrimaryKeyConstraint("unit_id", "step", name="pk_draft_steps"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
