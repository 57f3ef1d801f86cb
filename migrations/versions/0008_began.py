"""When the batch of a unit began: whether the arms took turns. Of units stored before it is not known (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add `units.began`."""
    op.add_column("units", sa.Column("began", sa.Float()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
