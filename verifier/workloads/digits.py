"""Real handwritten digits: a small CNN on the 1,797 scans of 8x8 pixels that scikit-learn carries.

The data is Alpaydin and Kaynak's "Optical Recognition of Handwritten Digits" (UCI, 1998), in the package itself, so
nothing is downloaded. One scan in five is held out; the rest is reshuffled each epoch, the same on every rank, and
each large batch is shared out over ranks. Trained in float64, where the comparison with the single process needs no
tolerance to tune. scikit-learn is an optional dependency (``lockstep-ddp[frameworks]``).
"""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import nn

from verifier.workload import Workload


class DigitsWorkload(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        ).double()

    @cached_property
    def scans(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All scans (1797, 1, 8, 8), float64 in [0, 1], and their digits (1797,), in one fixed shuffled order."""
        from sklearn.datasets import load_digits

        pixels, digits = load_digits(return_X_y=True)
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
        images = torch.as_tensor(pixels, dtype=torch.float64).view(-1, 1, 8, 8) / 16
        return images[order], torch.as_tensor(digits, dtype=torch.long)[order]

    @property
    def num_held_out(self) -> int:
        return len(self.scans[0]) // 5

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        images, digits = (part[self.num_held_out :] for part in self.scans)
        steps_per_epoch = len(images) // self.scenario.samples_per_step
        epoch, place = divmod(step, steps_per_epoch)
        shuffle = torch.Generator().manual_seed(self.scenario.seed * 1_000_003 + epoch)
        order = torch.randperm(len(images), generator=shuffle)
        chosen = order[place * self.scenario.samples_per_step :][: self.scenario.samples_per_step]
        return images[chosen], digits[chosen]

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        images, digits = (part[: self.num_held_out].to(self.device) for part in self.scans)
        with torch.no_grad():
            right = (model(images).argmax(1) == digits).float().mean()
        return {"held_out_accuracy": float(right)}


WORKLOAD = DigitsWorkload
