"""Shares of a step from a trace: small traces with known answers, and the published rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.lab import trace

PUBLISHED = {  # compute, non-compute, idle, overlap, overhead in percent; all-reduce ms
    "simple_ddp": (67.14, 30.54, 2.33, 0.00, 30.78),
    "simple_ddp_ga": (81.58, 14.64, 3.79, 0.00, 14.73),
    "simple_ddp_hook": (80.30, 15.93, 3.78, 0.00, 16.05),
    "simple_ddp_async": (81.89, 14.32, 3.79, 0.07, 14.43),
    "bucket_ddp_async": (80.59, 15.73, 3.68, 9.63, 16.60),
    "pytorch_ddp": (71.13, 26.95, 1.92, 57.16, 35.83),
}


def event(name, category, start, length):
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length}


@pytest.mark.parametrize("row", PUBLISHED.values(), ids=PUBLISHED)
def test_the_published_rows_agree_with_our_definitions(row):
    """Compute, non-compute and idle share out the step; exposed communication is part of non-compute."""
    compute, non_compute, idle, overlap, overhead = row
    assert compute + non_compute + idle == pytest.approx(100, abs=0.02)
    exposed = overhead / 100 * (100 - idle) * (1 - overlap / 100)
    assert exposed <= non_compute


def test_a_cpu_step():
    events = [
        event(trace.STEP, "user_annotation", 0, 100),
        event("aten::mm", "cpu_op", 0, 40),
        event("aten::add", "cpu_op", 10, 5),  # inside the one above: counts once
        event("autograd::engine::evaluate_function", "cpu_op", 0, 90),  # contains others: nothing of its own
        event("c10d::allreduce_", "cpu_op", 30, 2),
        event("gloo:all_reduce", "user_annotation", 30, 30),
        event("gloo:all_reduce", "user_annotation", 50, 20),  # on another thread
        event("aten::mm", "cpu_op", 500, 40),  # after the step
    ]
    (kinds,), (length,) = trace.read(events), trace.windows(events)
    found = trace.shares(kinds, length)
    assert found.compute_percent == pytest.approx(40)
    assert found.non_compute_percent == pytest.approx(30)
    assert found.idle_percent == pytest.approx(30)
    assert found.overlap_percent == pytest.approx(25)
    assert found.overhead_percent == pytest.approx(100 * 40 / 70)


def test_a_cuda_step_is_read_from_its_kernels():
    """Made by hand, as a trace of NCCL looks: no GPU was at hand."""
    events = [
        event(trace.STEP, "user_annotation", 0, 100),
        event("aten::mm", "cpu_op", 0, 100),
        event(trace.STEP, "gpu_user_annotation", 5, 90),
        event("ampere_sgemm", "kernel", 10, 50),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", 40, 40),
        event("Memcpy HtoD", "gpu_memcpy", 0, 5),
    ]
    (kinds,), (length,) = trace.read(events, "cuda"), trace.windows(events)
    found = trace.shares(kinds, length)
    assert (found.compute_percent, found.overlap_percent) == (pytest.approx(50), pytest.approx(50))
    assert found.non_compute_percent == pytest.approx(25)
    assert found.idle_percent == pytest.approx(25)


SPANS = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200)).map(lambda s: (s[0], s[0] + s[1])), max_size=20)


@given(SPANS, SPANS)
def test_shares_add_up(compute, communication):
    events = [event(trace.STEP, "user_annotation", 0, 1200)]
    events += [event("aten::mm", "cpu_op", a, b - a) for a, b in compute]
    events += [event("gloo:all_reduce", "user_annotation", a, b - a) for a, b in communication]
    found = trace.shares(trace.read(events)[0], trace.windows(events)[0])
    assert found.compute_percent + found.non_compute_percent + found.idle_percent == pytest.approx(100)
    assert 0 <= found.overlap_percent <= 100 + 1e-9
    assert found.overlap_s == pytest.approx(trace.length(trace.common(trace.merged(communication),
                                                                      trace.merged(compute))) / 1e6)  # fmt: skip
