"""How much of a model's probability a case's constraint left out. NULL of units without one, and of all before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add `units.constraint_masked`."""
    op.add_column("units", sa.Column("constraint_masked", sa.Float()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
