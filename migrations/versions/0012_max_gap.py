"""The longest wait between two tokens of an answer, in seconds. NULL of answers of one, and of all before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add `units.max_gap`."""
    op.add_column("units", sa.Column("max_gap", sa.Float()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
