"""The store's schema, step by step (Alembic). Installed as `qualgate_migrations`."""
