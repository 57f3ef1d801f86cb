"""No table changes: the number keeps programs out that would take for damage what is written from here on. That is
arrays of float64 kept as float32 where that loses nothing (`qualgate/store/columns.py`), and runs of whose evidence a
part was let go or came back. Older rows stay, and are read, as they are."""

from __future__ import annotations

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Nothing."""


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
