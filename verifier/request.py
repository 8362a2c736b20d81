"""A request: the strategy, and how to try it. The body of ``POST /runs`` and the command's flags.

Special here: everything that can be refused before a process starts is refused here or in ``situation.plan``,
with a sentence that names the value, the rule and the remedy. This module imports no torch.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from verifier.errors import UnknownName, UsageError

Profile = Literal["quick", "standard", "thorough"]
MAX_WORLD_SIZE = 64

_ENTRYPOINT = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
_FILE_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _kind_is_required(schema: dict[str, Any]) -> None:
    """Require ``kind`` in JSON; Python may leave it out, because the class implies it."""
    schema["required"] = ["kind", *(name for name in schema.get("required", []) if name != "kind")]


class _Ref(_Model):
    model_config = ConfigDict(json_schema_extra=_kind_is_required)


class Builtin(_Ref):
    """A strategy that ships in ``ddp_core/strategies``."""

    kind: Literal["builtin"] = "builtin"
    name: str = Field(max_length=100, examples=["bucketed"])
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its wrap()")


class Imported(_Ref):
    """A strategy importable where the ranks run: ``package.module:attribute``."""

    kind: Literal["import"] = "import"
    entrypoint: str = Field(max_length=300, examples=["pkg.mod:wrap"])
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("entrypoint")
    @classmethod
    def _form(cls, value: str) -> str:
        if not _ENTRYPOINT.match(value):
            raise ValueError(f"'{value}' is not of the form package.module:attribute")
        return value


class FromFile(_Ref):
    """A strategy in a file on this machine: the command's ``path/to/file.py:attribute``. Not accepted over HTTP."""

    kind: Literal["file"] = "file"
    path: str
    attribute: str = "wrap"
    options: dict[str, Any] = Field(default_factory=dict)


class Source(_Ref):
    """Source files sent along. They run only where ranks are contained, or after an explicit ``--trust``."""

    kind: Literal["source"] = "source"
    files: dict[str, str] = Field(min_length=1, max_length=50, examples=[{"mine.py": "def wrap(model): ..."}])
    entrypoint: str = Field(max_length=300, examples=["mine:wrap"])
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("entrypoint")
    @classmethod
    def _form(cls, value: str) -> str:
        return Imported._form(value)

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if not _FILE_NAME.match(name) or ".." in name or len(name) > 200:
                raise ValueError(f"'{name}' is not a plain relative path such as 'mine.py' or 'pkg/mine.py'")
        return files


StrategyRef = Annotated[Builtin | Imported | FromFile | Source, Field(discriminator="kind")]
RemoteStrategyRef = Annotated[Builtin | Imported | Source, Field(discriminator="kind")]


def sentence(error: ValidationError) -> str:
    """The values that were given and what is wrong with each, in one sentence."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} (given: {e['input']!r})" for e in error.errors())


class Request(_Model):
    """One verification. Defaults are the command's."""

    strategy: StrategyRef
    world_size: int = Field(4, description="number of ranks")
    profile: Profile = "standard"
    workloads: tuple[str, ...] | None = Field(None, description="only these workloads; None: the profile's own")
    checks: tuple[str, ...] | None = Field(None, description="only these check codes; None: all")
    backend: Literal["auto", "gloo", "nccl", "cpu:gloo,cuda:nccl"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    launcher: str = "auto"
    driver: str | None = Field(None, description="driver style; None: found by looking")
    fault: str | None = Field(None, description="a fault to plant in the strategy, to see it caught")
    seed: int = Field(0, ge=0, lt=2**32)
    delay_ms: float = Field(
        0.0, ge=0, le=1000, description="collectives of every scenario start and finish late by up to this, seeded"
    )
    timeout_s: float = Field(600.0, gt=0, le=86_400, description="seconds for the whole verification")
    trust: bool = Field(False, description="run sent source without a container")

    @classmethod
    def of(cls, strategy: StrategyRef, settings: dict[str, Any]) -> Request:
        """Make a request from Python, where a setting may be misspelt.

        Raises:
            UsageError: with a sentence in place of pydantic's list.
        """
        if unknown := sorted(settings.keys() - cls.model_fields.keys()):
            raise UnknownName("setting", unknown[0], cls.model_fields.keys() - {"strategy"})
        try:
            return cls(strategy=strategy, **settings)
        except ValidationError as error:
            raise UsageError(sentence(error)) from None
