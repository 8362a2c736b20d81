"""What a strategy multiplies the loss by, or the gradient of the model's output; tags are scaled by the same factor.

Special here: the factor is measured where a backward enters the *bare* model, behind whatever a wrapper has hung on its
output. A factor that is applied later, at a parameter, belongs to the reduction, and is judged. Dividing by W before
the backward and summing afterwards is right; the tags that replace gradients must then be divided, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from verifier.errors import OurFault
from verifier.journal import Journal
from verifier.uncompiled import uncompiled

SAME = 1e-6


def _alike(bare: Any, output: Any) -> bool:
    """Return whether a loss can be computed from ``bare`` just as from ``output``."""
    if type(bare) is not torch.Tensor or not isinstance(output, torch.Tensor) or not bare.is_floating_point():
        return False
    return bare.shape == output.shape


class LossScale:
    """Follows the factor of one rank's replica, and calls ``tell`` with each new one."""

    def __init__(self, journal: Journal, world_size: int, tell: Callable[[float], None]) -> None:
        self._journal, self._world_size, self._tell = journal, world_size, tell
        self._factor = 1.0
        self._outputs: list[Any] = []

    @contextmanager
    def watching(self, kind: type[nn.Module]) -> Iterator[None]:
        """While inside, keep the outputs of modules of the bare model's class, those of a wrapper's copies as well."""
        self._outputs.clear()

        @uncompiled
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(module, kind):
                self._outputs.append(output)

        handle = register_module_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def follow(self, loss: torch.Tensor, output: Any, loss_of: Callable[[Any], torch.Tensor]) -> None:
        """Follow the backward that begins with ``loss``. ``loss_of`` computes it from the ``output`` that a loop gets,
        and also from the bare model's output, if that is alike.
        """
        if not loss.requires_grad:
            return
        loss.register_hook(self._reached_loss)
        outputs, self._outputs = self._outputs, []
        if len(outputs) != 1 or not _alike(outputs[0], output) or outputs[0].grad_fn is None:
            return  # in several pieces, of other rows, or of another kind: only the loss itself is followed
        bare = outputs[0].detach().requires_grad_()
        with torch.enable_grad():
            (expected,) = torch.autograd.grad(loss_of(bare), bare)
        # This runs after all hooks of the tensor itself, the wrapper's included.
        outputs[0].grad_fn.register_prehook(partial(self._reached_model, expected))

    @uncompiled
    def _reached_loss(self, gradient: torch.Tensor) -> None:
        self._set(float(gradient))

    @uncompiled
    def _reached_model(self, expected: torch.Tensor, gradients: tuple[torch.Tensor | None, ...]) -> None:
        try:
            self._compare(expected, gradients)
        except Exception as error:  # inside their backward, where it would look like a refusal of the strategy's
            raise OurFault(f"following the loss failed: {error!r}") from error

    def _compare(self, expected: torch.Tensor, gradients: tuple[torch.Tensor | None, ...]) -> None:
        gradient = gradients[0]
        if gradient is None or gradient.shape != expected.shape:
            return
        place = int(expected.abs().argmax())
        largest = float(expected.reshape(-1)[place])
        factor = float(gradient.reshape(-1)[place]) / largest if largest else 0.0
        if not math.isfinite(factor * largest):  # weights have become NaN, say, which is judged elsewhere
            return
        near = max(SAME, 2 * torch.finfo(expected.dtype).eps)
        if factor and torch.allclose(gradient, expected * factor, rtol=near, atol=near * abs(largest * factor)):
            self._set(factor, near)

    def _set(self, factor: float, near: float = SAME) -> None:
        if not math.isfinite(factor):
            return
        # The measured factor is rounded. In a narrow dtype 255 and 256 cannot be told apart: it is left as measured.
        exacts = [(1.0, near), (1 / self._world_size, near), (float(round(factor)), SAME)]
        if SAME < abs(factor) < 1:
            exacts.append((1 / round(1 / factor), SAME))
        for exact, within in exacts:
            if abs(factor - exact) < within * abs(exact):
                factor = exact
        if factor != self._factor:
            self._factor = factor
            self._journal.note("loss_scale", factor)
            self._tell(factor)
