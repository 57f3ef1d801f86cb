"""Work that may take too long or too much, done where it can be ended."""

from qualgate.killable.child import Bounds, Killed, dismiss, run

__all__ = ["Bounds", "Killed", "dismiss", "run"]
