"""Settings of the service: defaults, then ``LOCKSTEP_*`` from the environment, then what the command was given.

Special here: a bad value ends in a sentence that names the variable, the value and the rule (``UsageError``),
and an empty variable counts as not set, so that a compose file may pass ``${LOCKSTEP_DATABASE_URL:-}`` on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from verifier.errors import UsageError

DATABASE_FILE = "lockstep.sqlite"
# DBOS and we both speak to Postgres through psycopg 3, whatever spelling of the scheme was given.
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}


def _usable_cpus() -> int:
    # A container or a batch job may be given fewer CPUs than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Settings(BaseSettings):
    """What the API and the workers of one deployment have in common."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", env_ignore_empty=True, extra="forbid", validate_default=True
    )

    data_dir: Path = Field(Path("lockstep-data"), description="reports, recordings, SQLite file")
    database_url: str | None = Field(None, description="None: an SQLite file in the data directory")
    host: str = "127.0.0.1"
    published_on: str | None = Field(
        None, description="in a container: the host's address that the port is published on, as others reach it"
    )
    port: int = Field(8000, ge=0, le=65535, description="0: any free port")
    slots: int = Field(default_factory=_usable_cpus, ge=1, description="ranks that may run at once here")
    worker: bool = Field(True, description="whether `lockstep serve` also executes runs")
    launcher: str = Field("auto", description="how ranks are run; what a request may not choose otherwise, unless auto")
    trust_source: bool = Field(False, description="run sent source without a container")
    executor_id: str | None = Field(None, max_length=60, description="name of this worker in the run's row")
    shutdown_s: int = Field(5, ge=0, description="seconds that open requests get when the service stops")

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _supported(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            url = make_url(value)
        except ArgumentError:
            raise ValueError("it is not a database URL such as postgresql://user@host/name") from None
        if url.drivername in _POSTGRES and url.database:
            return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        if url.drivername == "sqlite" and url.database not in (None, "", ":memory:"):
            return value
        raise ValueError("only sqlite:///FILE and postgresql://HOST/NAME are supported")

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / DATABASE_FILE}"

    @property
    def runs_dir(self) -> Path:
        return self.data_dir / "runs"


def load_settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by the arguments that are not None."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageError(_sentence(error, given)) from None


def _sentence(error: ValidationError, given: dict[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    source = f"--{name.replace('_', '-')}" if name in given else f"LOCKSTEP_{name.upper()}"
    # A database URL may hold a password, which must not end up in a log.
    value = "" if name == "database_url" else f" is '{first['input']}', but"
    return f"{source}{value}: {first['msg'].removeprefix('Value error, ')}. Correct it and start again."
