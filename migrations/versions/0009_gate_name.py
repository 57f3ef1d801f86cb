"""What a run's gate file is called: lists of runs name it. Of runs stored before it is not known (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add `runs.gate_name`."""
    op.add_column("runs", sa.Column("gate_name", sa.Text()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
