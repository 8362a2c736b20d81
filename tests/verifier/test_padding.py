"""Padding for LS701: zeros that fill a buffer up to its alignment, but not a tensor of zeros."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.checks.ls701_redundant_reduction import _num_padded


def payload(*runs: int) -> np.ndarray:
    """Alternating runs of ones and zeros, of these lengths."""
    return np.concatenate([np.full(length, (place + 1) % 2) for place, length in enumerate(runs)])


@pytest.mark.parametrize(
    ("runs", "num_padded"),
    [
        ((170, 342), 342),  # a flat buffer of 512
        ((5, 59, 40, 24), 83),  # each gradient begins at a multiple of 64
        ((25, 45, 40, 18), 57),  # the same, and the next gradient begins with zeros
        ((61, 67, 40, 24), 87),  # the last gradient before the padding ends in zeros
        ((170, 445), 0),  # frozen parameters after the trained ones: 615 is no multiple of an alignment
        ((25, 200, 170), 0),  # frozen parameters between trained ones
        ((0, 256), 0),  # a frozen parameter by itself
        ((64, 64), 64),  # a flat buffer of 128
        ((128, 256), 127),  # 384 is a multiple of 128: filling up to it takes less than 128
        ((7,), 0),
    ],
)
def test_what_counts_as_padding(runs, num_padded):
    assert _num_padded(payload(*runs)) == num_padded


def test_what_was_not_kept_is_not_known_to_be_padding():
    assert _num_padded(None) == 0
