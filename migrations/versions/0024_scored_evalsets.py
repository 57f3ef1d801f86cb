"""Evalsets as a later scoring read them: new metrics, corrected references. NULL: as the run recorded them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Add `scorings.evalsets_json`."""
    op.add_column("scorings", sa.Column("evalsets_json", sa.Text()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
