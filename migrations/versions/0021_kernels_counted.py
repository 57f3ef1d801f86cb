"""The index that counts a run's units holds their kernels too: a run's page reads no answers for them."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Make the index on `units` (run_id, arm, status) one with `kernel`."""
    op.create_index("ix_units_run_id_arm_status_kernel", "units", ["run_id", "arm", "status", "kernel"])
    op.drop_index("ix_units_run_id_arm_status", "units")


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
