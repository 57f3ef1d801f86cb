"""Of each draft step its pass, how many sequences shared that, and Σ min(p, q). NULL of all steps before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add three columns to `draft_steps`."""
    op.add_column("draft_steps", sa.Column("pass_number", sa.Integer()))
    op.add_column("draft_steps", sa.Column("sequences", sa.Integer()))
    op.add_column("draft_steps", sa.Column("overlap", sa.Float()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
