"""Settings of the service: defaults, overridden by ``LOCKSTEP_*`` from the environment, then by the command's options.

Special here: a bad value raises ``UsageError`` with a sentence that names the variable, the value and the rule.
An empty variable counts as not set, so that a compose file may pass ``${LOCKSTEP_DATABASE_URL:-}`` on.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from verifier.errors import UsageError

DATABASE_FILE = "lockstep.sqlite"
# DBOS and our code both use psycopg 3 for Postgres, whichever spelling of the scheme was given.
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}


def _usable_cpus() -> int:
    # A container or a batch job may have fewer CPUs than the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Settings(BaseSettings):
    """The settings that the API and the workers of one deployment share."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", env_ignore_empty=True, extra="forbid", validate_default=True
    )

    data_dir: Path = Field(Path("lockstep-data"), description="reports, recordings, and the database if it is SQLite")
    database_url: str | None = Field(
        None, description="postgresql://USER@HOST/NAME or sqlite:///FILE; none: an SQLite file in the data directory"
    )
    host: str = Field("127.0.0.1", description="address to listen on; any but this machine's own asks for API keys")
    published_on: str | None = Field(
        None, description="in a container: the host's address that the port is published on, as others reach it"
    )
    allowed_hosts: str = Field(
        "", description="names, by commas, under which this machine may be asked without a key, beside its own"
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: any free one")
    slots: int = Field(default_factory=_usable_cpus, ge=1, description="ranks that may run at once on this worker")
    worker: bool = Field(True, description="whether `lockstep serve` also executes runs")
    launcher: str = Field("auto", description="how ranks are run; unless auto, a request may not choose another")
    trust_source: bool = Field(False, description="run sent source without a container")
    executor_id: str | None = Field(None, max_length=60, description="this worker's name in runs; none: the host's")
    shutdown_s: int = Field(5, ge=0, description="seconds that open requests and streams get when the service stops")

    max_body_bytes: int = Field(4 * 2**20, ge=1024, description="largest body of a request")
    max_queued: int = Field(10_000, ge=0, description="runs that may wait, all callers together; 0: any number")
    max_unfinished_per_key: int = Field(
        1000, ge=0, description="runs of one API key that may be waiting or running, unless the key has its own number"
    )
    runs_per_hour_per_key: int = Field(
        0, ge=0, description="runs that one API key may submit in an hour, unless it has its own number; 0: any number"
    )
    requests_per_minute: int = Field(
        3000, ge=0, description="requests of one API key that one API process answers in a minute; 0: any number"
    )

    keep_runs_days: int = Field(365, ge=0, description="days after which ended runs are deleted; 0: never")
    keep_recordings_days: int = Field(
        30, ge=0, description="days after which recordings are deleted, and reports stay; 0: never"
    )
    keep_audit_days: int = Field(365, ge=0, description="days that entries of the audit log are kept; 0: for ever")

    webhook_url: str | None = Field(None, description="whom to tell of every run that ends, if it names nobody itself")
    webhook_hosts: str = Field(
        "", description="hosts that a run may name in its own webhook, by commas; none: no run may name one"
    )
    webhook_secret: SecretStr | None = Field(
        None, description="signs webhooks: whsec_ and 24 to 64 bytes in base64; needed for any webhook"
    )
    otel: bool = Field(False, description="send traces by OpenTelemetry, as its own OTEL_ variables say")

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

    @field_validator("webhook_secret")
    @classmethod
    def _a_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            signing_key(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _signed(self) -> Self:
        if (self.webhook_url or self.webhook_hosts) and self.webhook_secret is None:
            raise ValueError("webhooks are asked for, and there is no LOCKSTEP_WEBHOOK_SECRET to sign them with")
        if self.webhook_url and not self.webhook_url.startswith(("http://", "https://")):
            raise ValueError(f"LOCKSTEP_WEBHOOK_URL is '{self.webhook_url}', which is no http or https address")
        return self

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / DATABASE_FILE}"

    @property
    def runs_dir(self) -> Path:
        return self.data_dir / "runs"


def signing_key(secret: str) -> bytes:
    """The bytes of a webhook secret in the format of standardwebhooks.com.

    Raises:
        ValueError: ``secret`` has not that format; the message does not repeat it.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise ValueError(
            "it is not whsec_ and 24 to 64 bytes in base64. Make one: echo whsec_$(head -c 32 /dev/urandom | base64)"
        )
    return key


def load_settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by the arguments that are not None."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageError(_sentence(error, given)) from None


def _sentence(error: ValidationError, given: dict[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:  # the message of a rule about several settings names them itself
        return f"{first['msg'].removeprefix('Value error, ')}. Correct it and start again."
    name = str(first["loc"][0])
    source = f"--{name.replace('_', '-')}" if name in given else f"LOCKSTEP_{name.upper()}"
    # A database URL may hold a password, and a webhook secret is one: neither may appear in a log.
    value = "" if name in ("database_url", "webhook_secret") else f" is '{first['input']}', but"
    return f"{source}{value}: {first['msg'].removeprefix('Value error, ')}. Correct it and start again."
