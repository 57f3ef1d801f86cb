"""What certifies a unit's KL where the baseline was kept in few bits. Units stored before are exact (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add `units.kl_eta`."""
    op.add_column("units", sa.Column("kl_eta", sa.Float()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
