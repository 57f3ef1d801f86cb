"""How many tokens an answer's thought takes. -1: nobody counted; NULL of cases without one, and of all before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add `units.thought_tokens`."""
    op.add_column("units", sa.Column("thought_tokens", sa.Integer()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
