"""What multiplied the packed weights, for each unit. Units stored before say nothing (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add `units.kernel`."""
    op.add_column("units", sa.Column("kernel", sa.String(length=200)))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
