"""What one collective carries: the caller's tensors, and the shadows of them that the transport works on.

Special here: the transport never sees the poison, because it writes only to shadows. It reads the caller's inputs
directly, unless an output that is about to be poisoned shares their memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from verifier.observe import poison


class Cargo:
    """The tensors of one collective: the caller's, the shadows for the transport, and inputs that must not change."""

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        *,
        poisoned: bool,
        results: list[torch.Tensor] | None = None,
    ) -> None:
        self.outputs = list(outputs)
        self.results = self.outputs if results is None else results
        self.shadows = [_shadow(t) if poisoned else t for t in outputs]
        self.inputs = list(inputs)  # as the transport is to read them
        self._watched: list[tuple[torch.Tensor, int]] = []
        self._spoilt: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        hidden = [mine for mine, shadow in zip(self.outputs, self.shadows, strict=True) if mine is not shadow]
        for place, tensor in enumerate(inputs if poisoned else ()):
            if poison.overlaps(tensor, hidden):  # in place (a slice of the output): read before it is poisoned
                self.inputs[place] = tensor.clone()
            elif (was := poison.digest(tensor)) is not None:
                self._watched.append((tensor, was))

    def spoil(self) -> None:
        """Poison the caller's outputs; called once the transport has what it needs."""
        for mine, shadow in zip(self.outputs, self.shadows, strict=True):
            if mine is not shadow and poison.spoil(mine):
                self._spoilt.append((mine, shadow, _version(mine)))

    def writes_to(self, tensor: torch.Tensor) -> bool:
        return poison.overlaps(tensor, self.outputs)

    @contextmanager
    def come_down(self) -> Iterator[None]:
        """While inside, the caller's tensors hold the results; afterwards they hold their former contents again."""
        hidden = [pair for pair in zip(self.outputs, self.shadows, strict=True) if pair[0] is not pair[1]]
        held = [mine.detach().clone() for mine, _ in hidden]
        for mine, shadow in hidden:
            mine.data.copy_(shadow)
        yield
        for (mine, _), before in zip(hidden, held, strict=True):
            mine.data.copy_(before)

    def read_only(self) -> bool:
        """Return whether what the transport reads is as it was when the collective began."""
        return all(poison.digest(tensor) == was for tensor, was in self._watched)

    def unload(self) -> str | None:
        """Give the caller the results. Return what was written to in flight: "output", "input" or None."""
        written = None if self.read_only() else "input"
        # The result may already be there from a twin: tied weights are in a state_dict() twice.
        if any(
            _touched(mine, version) and not poison.same_bits(mine, shadow) for mine, shadow, version in self._spoilt
        ):
            written = "output"
        for mine, shadow in zip(self.outputs, self.shadows, strict=True):
            if mine is not shadow:
                mine.data.copy_(shadow)
                if shadow.is_cuda:  # a future's callback has its own stream: the memory is in use until then
                    shadow.record_stream(torch.cuda.current_stream(shadow.device))
        self.shadows, self.inputs = self.outputs, []  # each shadow is a copy of the gradients
        self._watched, self._spoilt = [], []
        return written


def _shadow(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in the same layout, for the transport. Without one, return ``tensor``: errors then stay torch's."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor
    copy = tensor.detach().clone(memory_format=torch.preserve_format)
    return copy if copy.stride() == tensor.stride() or tensor.is_contiguous() else tensor


def _touched(tensor: torch.Tensor, version: int) -> bool:
    """Return whether ``tensor`` was written to. On an accelerator, reading it would wait for the device, so it is read
    only if torch has counted a write.
    """
    return (tensor.device.type == "cpu" or _version(tensor) != version) and not poison.is_spoilt(tensor)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
