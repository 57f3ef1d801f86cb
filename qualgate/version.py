"""This qualgate's version, which stands in pyproject.toml alone."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """As it was installed; "source" for a tree that never was."""
    try:
        return version("qualgate")
    except PackageNotFoundError:
        return "source"
