"""``state_dict()`` forgets buffers, and ``load_state_dict()`` does not miss them.

A resumed run goes on with the statistics of a fresh model: nothing raises, and evaluation is off for a while.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(
    trips={"LS503", "LS504"},
    cause="names_missing_in_state_dict",
    applies_to=("bucketed", "naive", "flat", "hook", "async_hook"),
)
def buffers_not_saved(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.state_dict = lambda: {name: parameter.detach() for name, parameter in model.named_parameters()}
    wrapped.load_state_dict = lambda saved: model.load_state_dict(saved, strict=False)
    return wrapped


FAULT = buffers_not_saved
