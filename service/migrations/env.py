"""Alembic's entry: migrates over the connection, and in the transaction, that ``service.migrate`` opened.

Special here: only the tables that ``service.db`` declares are ours; DBOS keeps its own in the same database.
"""

from alembic import context

from service.db import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    include_name=lambda name, kind, _parents: kind != "table" or name in Base.metadata.tables,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
