"""Wrong, refused and not claimed are distinct: a clear refusal of an unclaimed case is neither a failure nor a pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from verifier import engine
from verifier import workload as workloads
from verifier.recording import Collective, RankRecording
from verifier.refusal import misused_in_flight, stumbled_on_marker
from verifier.report.build import with_advice
from verifier.request import Builtin, Request
from verifier.run.loading import StrategyError

REFUSES = """
from ddp_core import Contract
from ddp_core.strategies import naive, strict
{contract}
def wrap(model):
    {body}
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(contract, body):
        path = tmp_path / "mine.py"
        path.write_text(REFUSES.format(contract=contract, body=body))
        return lockstep.verify(str(path), world_size=2)

    return run


def test_a_refusal_of_what_is_not_claimed_is_not_a_failure(verify):
    report = verify("CONTRACT = Contract(broadcasts_at_start=False)", "return strict.wrap(model)")
    report.assert_pass()
    start = next(scenario for scenario in report.scenarios if scenario.name == "different_start")
    assert start.refused is not None
    assert "replicas do not start equal: rank 1 holds other values of 'inlet.weight'" in start.refused
    (initial,) = [check for check in report.checks if check.code == "LS001"]
    assert initial.claimed  # other scenarios test it: accepted replicas start equal
    assert initial.verdict == "pass"


def test_a_refusal_of_what_is_claimed_is_no_pass(verify):
    report = verify("", "return strict.wrap(model)")
    assert report.verdict == "unknown"
    assert any("different_start: rank 0 raised" in problem for problem in report.problems)


def test_one_that_leaves_replicas_unequal_without_claiming_more_is_not_judged_on_it(verify):
    report = verify(
        "CONTRACT = Contract(broadcasts_at_start=False)",
        "from ddp_core.wrapper import DataParallel\n    from ddp_core.strategies.naive import Naive\n"
        "    class Silent(DataParallel):\n        def broadcast_state(self, src=0): pass\n"
        "    return Silent(model, Naive())",
    )
    report.assert_pass()


def test_a_refusal_by_some_ranks_only_is_no_refusal(verify):
    report = verify(
        "CONTRACT = Contract(broadcasts_at_start=False)",
        "import torch.distributed as dist\n    if dist.get_rank() == 1: raise ValueError('only me')\n"
        "    return naive.wrap(model)",
    )
    assert report.verdict == "unknown"


@pytest.mark.parametrize(
    ("raises", "goes_on"), [("True", False), ("type(model).__name__ != 'StridedModel'", True)], ids=["all", "but_one"]
)
def test_a_wrap_that_raises_in_all_up_to_the_simplest_is_not_asked_again(lockstep, tmp_path, raises, goes_on):
    path = tmp_path / "mine.py"
    path.write_text(f"def wrap(model):\n    return model.no_such if {raises} else model")
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    assert report.verdict == ("fail" if goes_on else "unknown")
    assert any("not run: " in problem for problem in report.problems) is not goes_on


ONE_CLASS = """
import torch
from ddp_core.strategies import naive

class MyOptimizer:
    def __init__(self, optimizer):
        if not isinstance(optimizer, torch.optim.SGD):
            {says}
        self.optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

def wrap(model, optimizer):
    return naive.wrap(model), MyOptimizer(optimizer)
"""


@pytest.mark.parametrize(
    ("says", "refused"),
    [("raise TypeError(f'for SGD, not for {type(optimizer).__name__}')", True), ("optimizer.no_such", False)],
    ids=["named", "crash"],
)
def test_who_takes_one_class_of_optimizers_refuses_another_by_its_name(lockstep, tmp_path, says, refused):
    path = tmp_path / "mine.py"
    path.write_text(ONE_CLASS.format(says=says))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard", workloads=["llama"])
    adamw = next(scenario for scenario in report.scenarios if scenario.name == "adamw")
    assert (adamw.refused == "TypeError: for SGD, not for AdamW") is refused
    assert (report.verdict == "unknown") is not refused


@pytest.mark.parametrize("contract", ["dict(average='sum')", "None or 3"])
def test_a_contract_of_another_type_is_said_to_be_one(verify, contract):
    report = verify(f"CONTRACT = {contract}", "return naive.wrap(model)")
    assert report.verdict == "unknown"
    assert "must be a ddp_core.Contract" in report.problems[0]


SECOND_BACKWARD = """
import torch, torch.distributed as dist

class wrap(torch.nn.Module):
    '''Asynchronous, parameter by parameter in a fixed order: right for one backward a step.'''

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)
        self.order = [p for p in module.parameters() if p.requires_grad][::-1]
        self.reset()
        for p in self.order:
            p.register_post_accumulate_grad_hook(self.arrived)

    def reset(self):
        self.ready, self.next, self.works = set(), 0, []

    def arrived(self, p):
        if p in self.ready:
            {second}
        self.ready.add(p)
        while self.next < len(self.order) and self.order[self.next] in self.ready:
            self.launch(self.order[self.next])
            self.next += 1
        {between}

    def launch(self, p):
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        self.works.append((dist.all_reduce(p.grad, async_op=True), p))

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        for p in self.order[self.next:]:
            self.launch(p)
        for work, p in self.works:
            work.wait()
            p.grad /= dist.get_world_size()
        self.reset()
"""
TAKES_ANOTHER = """if self.next == len(self.order):
            self.next, self.ready = 0, set()"""


def second_backward(lockstep, tmp_path, **parts):
    path = tmp_path / "mine.py"
    path.write_text(SECOND_BACKWARD.format(**parts))
    return lockstep.verify(f"{path}:wrap", world_size=2, workloads=["exact", "llama"])


def test_an_error_after_touching_what_is_in_flight_is_no_refusal(lockstep, tmp_path, only):
    """Autograd adds a second micro-batch's gradient to the first's, which is in flight: NaN, for which torch raises."""
    only("plain", "realistic", "accumulation")
    report = second_backward(lockstep, tmp_path, second="pass", between=TAKES_ANOTHER)
    assert all(scenario.refused is None for scenario in report.scenarios)
    found = {check.code: check for check in report.checks}
    assert report.verdict == "fail"
    assert found["LS401"].failures[0].cause == "written_in_flight"


@pytest.mark.parametrize(
    ("said", "dtype", "landed", "early"),
    [
        ("RuntimeError: index 9223372036854775807 is out of bounds for dimension 0 with size 21", "int64", None, True),
        ("IndexError: index out of range in self", "int64", None, True),  # index_add_() does not say which
        ("RuntimeError: index out of range in self", "int32", None, True),
        ("RuntimeError: index 2147483647 is out of bounds for dimension 0 with size 21", "int64", 1.0, False),
        ("RuntimeError: index 9 is out of bounds for dimension 0 with size 9", "float32", None, False),
        ("IndexError: list index out of range", "int64", None, False),  # Python's own
        ("IndexError: index 9 is out of bounds for dimension 0 with size 9", "int64", None, False),
        ("RuntimeError: one backward a step, please", "int64", None, False),
    ],
)
def test_an_index_out_of_bounds_is_no_refusal_while_integers_are_in_flight(said, dtype, landed, early):
    call = Collective(
        seq=0, op="allgather_", group="0", phase="backward", step=0, dtype=dtype, numel=21, num_bytes=84,
        reduce_op=None, root=None, issued=0.0, landed=landed, written_in_flight=False, contents=None, ranks=(0, 1),
    )  # fmt: skip
    rank = RankRecording(0, outcome={"status": "raised", "error": "own", "detail": said}, collectives=[call])
    assert misused_in_flight(rank) is early
    assert stumbled_on_marker(rank) is (call if early else None)
    rank.collectives = [replace(call, op="send")]  # what is sent is not filled with the marker
    assert stumbled_on_marker(rank) is None
    rank.collectives = [call]
    rank.outcome = {"status": "raised", "error": "foreign", "detail": said}  # another rank's, that arrived here
    assert stumbled_on_marker(rank) is None


def test_a_refusal_in_the_second_backward_is_one(lockstep, tmp_path, only):
    """Its hook raises after autograd has added to a gradient in flight, whose result is no longer waited for."""
    only("plain", "realistic", "accumulation")
    report = second_backward(lockstep, tmp_path, second="raise RuntimeError('one backward a step, please')", between="")
    report.assert_pass()
    realistic = next(scenario for scenario in report.scenarios if scenario.name == "realistic")
    assert realistic.refused == "RuntimeError: one backward a step, please"


LOADS = """
from torch.nn.parallel import DistributedDataParallel

class wrap(DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        raise {error}
"""


def loads(lockstep, tmp_path, error):
    path = tmp_path / "mine.py"
    path.write_text(LOADS.format(error=error))
    return lockstep.verify(f"{path}:wrap", world_size=2, workloads=["saved"])


def test_who_has_saved_and_cannot_load_that_has_not_refused(lockstep, tmp_path):
    report = loads(lockstep, tmp_path, "KeyError('module.encoder.weight')")
    found = {check.code: check for check in report.checks}
    assert [code for code, check in found.items() if check.verdict == "fail"] == ["LS504"]
    assert found["LS504"].failures[0].cause == "not_loaded"
    assert "KeyError: 'module.encoder.weight'" in found["LS504"].failures[0].explanation


def test_who_says_that_loading_is_not_implemented_has_refused(lockstep, tmp_path):
    report = loads(lockstep, tmp_path, "NotImplementedError('load by torch.distributed.checkpoint')")
    assert report.verdict != "fail"
    nothing_is_loaded = {"clipping_groups", "schedule_groups"}
    assert {s.name for s in report.scenarios if not s.refused} == nothing_is_loaded


@pytest.mark.parametrize("scenario", engine.plan(Request(strategy=Builtin(name="naive"), profile="thorough", seed=3)))
def test_a_situation_says_that_it_needs_float64(scenario):
    if {"complex_parameters", "mixed_dtypes"} & {*scenario.needs}:  # these claims imply float64
        assert "float64" not in scenario.needs
        return
    model = workloads.load(scenario).model(0)
    assert ("float64" in scenario.needs) == any(p.dtype == torch.float64 for p in model.parameters())


IN_FLOAT32 = """
import torch
from torch.nn.parallel import DistributedDataParallel

class wrap(DistributedDataParallel):
    def __init__(self, module):
        if any(p.dtype == torch.float64 for p in module.parameters()):
            raise {error}
        super().__init__(module, find_unused_parameters=True)
"""


def test_who_trains_in_float32_alone_refuses_the_rest(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(IN_FLOAT32.format(error="TypeError('unsupported grad type: torch.float64')"))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    report.assert_pass()
    refused = {scenario.name for scenario in report.scenarios if scenario.refused}
    assert {"adamw", "schedule", "large", "resume"} <= refused
    assert not {"plain", "branch_order", "float32", "eval_mode"} & refused


@pytest.mark.usefixtures("in_short")
def test_an_error_that_names_no_dtype_is_no_refusal_of_float64(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(IN_FLOAT32.format(error="RuntimeError('something went wrong')"))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    assert report.verdict == "unknown"
    assert any("something went wrong" in problem for problem in report.problems)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("NCCL does not support all_reduce with sparse tensors. Please use dense tensors."), "own"),
        (RuntimeError("Float8 dtypes are not currently supported for NCCL reductions"), "own"),
        (RuntimeError("Cannot use ReduceOp.BAND with NCCL"), "own"),
        (RuntimeError("NCCL communicator was aborted on rank 1."), "transport"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"), "transport"),
        (RuntimeError("shapes do not match"), "own"),
    ],
)
def test_what_a_transport_does_not_offer_is_no_word_of_another_rank(error, kind):
    """Every rank itself refuses a sparse gradient over NCCL: that is a refusal, and not a rank that has left."""
    assert StrategyError.of("in step 0", error).kind == kind


@pytest.mark.parametrize(("backend", "told"), [("nccl", True), ("gloo", False)])
def test_what_to_do_is_told_where_nccl_was_handed_a_tensor_of_the_cpu(backend, told):
    said = "RuntimeError: No backend type associated with device type cpu"
    assert ("--backend cpu:gloo,cuda:nccl" in with_advice(said, backend)) is told
    assert with_advice("ValueError: no", backend) == "ValueError: no"
