"""Which batch a unit ran in: answers of one batch share its time. Of units stored before it is not known (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add `units.job`."""
    op.add_column("units", sa.Column("job", sa.Integer()))


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
