"""Sentences in 30 languages, by code; written for these tests, each the same six in every language."""

from __future__ import annotations

import json
from pathlib import Path

TEXTS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
