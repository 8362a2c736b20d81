"""Brings the database up to date: our tables with Alembic, then DBOS's with its own migrations.

Special here: only the entry points call it, never the API or a worker by themselves. It is safe when several processes
start at once: the first holds the database's write lock (or an advisory one) while the others wait.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.queue import migrate_queue
from service.settings import Settings

_LOCK = 0x10C4_57E9  # any number that is used for nothing else in this database


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def migrate(settings: Settings, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction for DDL by itself
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    migrate_queue(settings.database)


def is_current(engine: sa.Engine) -> bool:
    """Return whether the database is at this program's version."""
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found == ScriptDirectory.from_config(alembic_config()).get_current_head()
