"""Where data of others lies that cannot be shipped: rows that need it say so where it is not there."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"  # beside the checkout
