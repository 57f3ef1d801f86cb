"""Revisions of the store's schema, the oldest first."""
