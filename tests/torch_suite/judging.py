"""From what happened on the ranks to one of three words and one phrase.

Special here: "not applicable" has to be earned. Either the test asked for something that is not offered, or torch's
own DDP fails it here, too, or ``EXPECTS_DDPS_WAYS`` says which assertion of the test is about DDP's ways *and* the run
ended at that very assertion. Anything else is "failed".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.torch_suite.ranks import Result

UNUSED = "expects DDP to refuse unused parameters; ours takes them"
STATIC = "expects DDP's errors about a static graph; ours has no such mode"
EXPECTS_DDPS_WAYS = {  # test: (why it does not apply, where it ends)
    "test_ddp_unused_params_rebuild_buckets_exception": (UNUSED, "DDP unused parameters error not raised"),
    "test_ddp_multiple_nested_unused_params_error": (UNUSED, "Expected error was not raised!"),
    "test_ddp_multiple_nested_unused_params_err_ignore_params": (UNUSED, "Expected error was not raised!"),
    "test_static_graph_api_cpu": (STATIC, "RuntimeError not raised"),
    "test_invalid_static_graph": (STATIC, "RuntimeError not raised"),
    "test_ddp_broadcast_buffers_deprecation_warning": (
        "expects torch's warning that an option of DDP is deprecated",
        "0 not greater than 0",
    ),
}
NEEDS = (  # what torch's own DDP fails with here: what that means
    ("SyncBatchNorm expected input tensor to be on", "SyncBatchNorm runs on GPUs only"),
    ("SyncBatchNorm", "SyncBatchNorm runs on GPUs only"),
    ("None mismatch: None is not", "looks at the index of a GPU"),
    ("torch.cuda.Stream requires CUDA support", "uses a CUDA stream"),
    ("'gloo' != 'nccl'", "asks for NCCL"),
)
REFUSALS = (  # (what the error says, what is refused, may a second look pass over it?)
    ("holds hooks and a process group and cannot be pickled", "pickling the wrapper", True),
    ("belongs to a model that is wrapped already", "wrapping a model while an earlier wrapper of it exists", True),
    ("the model is wrapped already: wrap the bare model", "wrapping a wrapper", False),
    ("backward(create_graph=True) cannot be synchronised", "backward(create_graph=True)", False),
    ("an optimizer runs inside backward", "an optimizer inside backward", False),
    ("was replaced after wrapping", "parameters that were not wrapped, here functional_call's", False),
    ("has no parameter that requires a gradient", "it, with a ValueError; a RuntimeError is expected", False),
)
EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Warning)\b")
NO_MORE = "only makes a wrapper: the rest is about a function of torch"
REMARKS = {
    "test_compute_bucket_assignment_by_size_sparse_error_without_logger": NO_MORE,
    "test_verify_model_across_rank_without_logger": NO_MORE,
}


class Verdict(NamedTuple):
    """A line of the table."""

    test: str
    asks_for: str
    torch: str
    ours: str
    why: str


def judge(test: str, asks_for: str, torchs: Result, ours: Result, second: Result | None) -> Verdict:
    """``second``: the second look at a test that failed by a refusal."""
    torch_says = torchs.outcome
    if ours.outcome == "passed":
        why = REMARKS.get(test, "") if torch_says == "passed" else f"torch's own fails here: {last_line(torchs.text)}"
        return Verdict(test, asks_for, torch_says, "passed", why)
    if ours.outcome == "not applicable":
        return Verdict(test, asks_for, torch_says, "not applicable", ours.text)
    if torch_says != "passed":
        return Verdict(test, asks_for, torch_says, "not applicable", f"cannot pass here: {_need(torchs.text)}")
    why, place = EXPECTS_DDPS_WAYS.get(test, ("", None))
    if place is not None and place in ours.text:
        return Verdict(test, asks_for, torch_says, "not applicable", why)
    return Verdict(test, asks_for, torch_says, "failed", _why_failed(ours, second))


def _why_failed(ours: Result, second: Result | None) -> str:
    refused = next((what for sign, what, _ in REFUSALS if sign in ours.text), None)
    if refused is None:
        return last_line(ours.text)
    if second is None:
        return f"refuses {refused}"
    if second.outcome == "failed":
        also = _why_failed(second, None)
        return f"refuses {refused}; without that, the test ends with {also}"
    rest = "the rest passes" if second.outcome == "passed" else f"the rest asks for {second.text}"
    return f"refuses {refused}; {rest}"


def deserves_second_look(result: Result) -> bool:
    return result.outcome == "failed" and any(sign in result.text for sign, _, over in REFUSALS if over)


def _need(text: str) -> str:
    for sign, meaning in NEEDS:
        if sign in text:
            return meaning
    return f"torch's own fails with {last_line(text)}"


def last_line(text: str) -> str:
    """The exception of a traceback in one line that a table can hold."""
    lines = [" ".join(line.split()) for line in text.splitlines() if EXCEPTION.match(line)]
    words = lines[-1] if lines else text
    words = words.replace("|", "\\|")
    return words if len(words) <= 160 else words[:157] + "..."
