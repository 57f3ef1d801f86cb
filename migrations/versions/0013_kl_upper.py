"""Upper bounds of each position's KL, where `kl` holds lower ones. NULL of all before it, which hold the KL itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add `units.kl_upper`."""
    op.add_column("units", sa.Column("kl_upper", sa.LargeBinary()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
