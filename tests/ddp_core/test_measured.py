"""Parameters from measurements: exact on data that follow the model, plausible on other data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_core.cost import Contention, Layer, Link, timeline
from ddp_core.measured import Curve, contention_from, fit_link

SIZES = [1024 * 4**i for i in range(9)]


@given(st.floats(1e-6, 1e-2), st.floats(1e-11, 1e-8))
def test_a_fit_finds_the_line_that_is_there(alpha, beta):
    found = fit_link(SIZES, [alpha + beta * n for n in SIZES])
    assert found.alpha_s == pytest.approx(alpha, rel=1e-4, abs=1e-9)
    assert found.beta_s_per_byte == pytest.approx(beta, rel=1e-4)


@given(st.lists(st.floats(1e-6, 1), min_size=9, max_size=9))
def test_a_fit_is_never_negative(times):
    found = fit_link(SIZES, times)
    assert found.alpha_s >= 0
    assert found.beta_s_per_byte >= 0


def test_small_messages_count_as_much_as_large_ones():
    times = [1e-3 + 1e-9 * n for n in SIZES]
    times[-1] *= 1.5  # one large message was disturbed
    assert fit_link(SIZES, times).alpha_s == pytest.approx(1e-3, rel=0.1)


def test_a_curve_goes_through_what_was_measured():
    curve = Curve((1.0, 2.0, 4.0), (10.0, 20.0, 30.0))
    assert [curve.seconds(n) for n in (0.5, 1, 1.5, 2, 4, 6)] == [10, 10, 15, 20, 30, 40]
    layers = [Layer(2, 1.0), Layer(2, 1.0)]
    assert timeline(layers, 1, curve).step_s == 41.0
    with pytest.raises(ValueError, match="ascending"):
        Curve((2.0, 1.0), (1.0, 1.0))


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(1, 4), st.floats(1, 4))
def test_contention_is_found_from_a_run_of_both(backward, communication, slower, slower_too):
    """From times that the model predicts, ``contention_from`` recovers the model's factors."""
    both = Contention(slower, slower_too)
    # One bucket, which is ready at the start of backward.
    found = timeline([Layer(1, backward), Layer(1, 0.0)], 1, _Once(communication), contention=both)
    first, _ = found.transfers
    back = contention_from(backward, communication, _end(backward, communication, slower, slower_too), first.end_s)
    assert back.communication == pytest.approx(slower_too, rel=1e-6)
    assert back.backward == pytest.approx(slower, rel=1e-6)


class _Once:
    """A link whose first message takes ``seconds``, and others no time."""

    def __init__(self, seconds: float) -> None:
        self.left = [seconds]

    def seconds(self, num_bytes: float) -> float:
        return self.left.pop() if self.left else 0.0


def _end(backward: float, communication: float, slower: float, slower_too: float) -> float:
    """The end of a backward that starts together with one transfer."""
    if backward * slower <= communication * slower_too:
        return backward * slower
    beside = communication * slower_too
    return beside + backward - beside / slower


def test_refusals():
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_link([1], [1.0])
    with pytest.raises(ValueError, match="must be positive"):
        contention_from(0, 1, 1, 1)
    assert contention_from(1.0, 1.0, 0.5, 1.0) == Contention(1.0, 1.0)  # noise: faster together than alone
    assert Link(0, 0).seconds(10**9) == 0
