"""Alembic's entry point. The connection, inside its transaction, is handed in by `qualgate.store.database`."""

from __future__ import annotations

from alembic import context

from qualgate.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # all steps or none; SQLite can, though Alembic does not assume it
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
