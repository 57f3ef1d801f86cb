"""What was counted as drafted was the baseline's answer; what an arm's own draft proposes is counted beside it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Give `units.draft_*` the name of what they hold, and add those of the arm's own speculation (NULL so far)."""
    for name in ("proposed", "accepted"):
        op.alter_column("units", f"draft_{name}", new_column_name=f"baseline_{name}")
    for name in ("proposed", "accepted"):
        op.add_column("units", sa.Column(f"draft_{name}", sa.Integer()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
