"""The search for a cause never raises, whatever a wrong gradient holds: a failure without a cause is still a failure.

Special here: the values drawn are those at which arithmetic breaks: infinities, NaN, the smallest and the largest
numbers of a dtype, whose quotients are infinite and whose differences are zero.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from verifier.judge import diagnosis
from verifier.judge.evidence import GradientEvidence

DTYPES = [np.dtype(name) for name in ("float16", "float32", "float64", "complex64", "complex128")]
SHAPES = [(), (0,), (1,), (7,), (5, 5), (3, 40), (40, 33), (0, 3), (2, 3, 4)]


@st.composite
def evidence(draw):
    shape = draw(st.sampled_from(SHAPES))
    wanted = draw(st.sampled_from(DTYPES))
    world_size = draw(st.integers(1, 3))
    numbers = _numbers(shape, wanted)
    ranks = st.dictionaries(st.integers(0, world_size - 1), numbers, max_size=world_size)
    dtype = draw(st.sampled_from([wanted, np.dtype("float32")]))
    return GradientEvidence(
        observed=draw(_numbers(shape, dtype)),
        expected=draw(numbers),
        world_size=world_size,
        num_micro_batches=draw(st.integers(1, 3)),
        poisoned=draw(st.booleans()),
        rank=draw(st.integers(0, world_size - 1)),
        local=draw(ranks),
        written_in_flight=False,
        on_gpu=draw(st.booleans()),
        clipped=draw(st.booleans()),
        first=draw(ranks),
        last=draw(ranks),
        previous=draw(st.none() | numbers),
        dropped=draw(st.booleans()),
        weight=draw(st.none() | numbers),
        neighbours=draw(st.dictionaries(st.just("other"), ranks)),
        held=draw(ranks),
        agreed=draw(st.booleans()),
    )


def _numbers(shape, dtype):
    limits = np.finfo(dtype)
    odd = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("nan"), float("inf"), float("-inf")]
    odd += [float(limits.smallest_subnormal), float(limits.tiny), float(limits.max), float(limits.eps)]
    elements = st.sampled_from(odd)
    if dtype.kind == "c":
        elements = st.builds(complex, elements, elements)
    return arrays.arrays(dtype, shape, elements=elements, fill=st.sampled_from([0.0, 1.0, float("nan")]))


@settings(max_examples=200, deadline=None, suppress_health_check=[*HealthCheck])
@given(evidence())
def test_no_pattern_fails_whatever_the_numbers(evidence):
    with np.errstate(all="ignore"):
        for pattern in diagnosis._PATTERNS:
            cause = pattern(evidence)
            assert cause is None or (0 < cause.confidence <= 1 and cause.explanation)


def test_what_is_of_another_shape_fits_no_pattern():
    observed, expected = np.ones(3), np.ones((5, 5))
    given = {"world_size": 2, "num_micro_batches": 1, "poisoned": False, "rank": 0, "local": {}}
    assert diagnosis.diagnose(GradientEvidence(observed=observed, expected=expected, **given)) is None
