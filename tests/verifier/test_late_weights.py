"""Weights may still be in flight when ``step()`` returns, or be fetched in the next forward: that is no mistake.

Owners step their parameters and broadcast them without waiting, as sharded optimizers do to hide it behind the next
forward; workers ask a server when they need weights. Mistakes are: using weights before they arrive, copying too late,
or sending to some ranks only. Correct strategies that fetch are rows of the matrix (``fetched_by_workers``,
``fetched_from_owners``).
"""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from ddp_core import Contract, Driver

class Late(Driver):
    contract = Contract(
        sharded=True, sync_buffers=False, disclaims={"state_dict", "sparse_gradients", "unused_parameters"}
    )

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.under_way = []
        return model

    def before_step(self):
        for _, p in self.named_parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
                p.grad /= dist.get_world_size()
                dist.all_reduce(p.grad)

    def make_optimizer(self, cls, parameters, **options):
        self.owned = [(p, number % dist.get_world_size()) for number, p in enumerate(parameters)]
        return cls([p for p, owner in self.owned if owner == dist.get_rank()], **options)

    def zero_grad(self, optimizer, *, set_to_none=True):
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self, optimizer):
        optimizer.step()
        for p, owner in self.owned:
            self.under_way.append(self.send(p, owner))

    def forward(self, *inputs):
        for arrive in self.under_way:
            arrive()
        self.under_way.clear()
        return self.model(*inputs)
"""

# Broadcast into the parameter itself, made contiguous where it is not.
IN_PLACE = """
class wrap(Late):
    def send(self, p, owner):
        if not p.data.is_contiguous():
            p.data = p.data.contiguous()
        return dist.broadcast(p.data, owner, async_op=True).wait
"""

COPIED = """
class wrap(Late):
    def send(self, p, owner):
        flat = p.detach().contiguous().clone()
        work = dist.broadcast(flat, owner, async_op=True)

        def arrive():
            work.wait()
            p.data.copy_(flat)

        return arrive
"""

NEVER_WAITED = IN_PLACE.replace(").wait", ") and (lambda: None)")
NEVER_COPIED = COPIED.replace("p.data.copy_(flat)", "pass")
LEFT_OUT = IN_PLACE.replace("        if not", "        if owner == 1:\n            return lambda: None\n        if not")


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, **asked):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        return lockstep.verify(f"{path}:wrap", world_size=2, **asked)

    return run


def failed(report):
    return {check.code for check in report.checks if check.verdict == "fail"}


@pytest.mark.parametrize("body", [IN_PLACE, COPIED], ids=["in_place", "copied"])
def test_waited_for_in_the_next_forward(verify, body):
    verify(body).assert_pass()


@pytest.mark.parametrize("body", [IN_PLACE, COPIED], ids=["in_place", "copied"])
def test_where_results_are_held_back(verify, body):
    verify(body, profile="quick", delay_ms=3.0, seed=5).assert_pass()


def test_never_waited_for(verify):
    assert "LS401" in failed(verify(NEVER_WAITED, profile="quick"))


@pytest.mark.parametrize("body", [NEVER_COPIED, LEFT_OUT], ids=["never_copied", "left_out"])
def test_some_ranks_never_get_them(verify, body):
    assert "LS101" in failed(verify(body, profile="quick"))


FETCHED = """
import torch.distributed as dist
from tests.controls.fetched_by_workers import Worker
from tests.controls.fetched_from_owners import Gathered
"""

FETCHES_ONCE = """
class wrap(Worker):
    fetched = False

    def forward(self, *inputs):
        if self.fetched:
            return self.module(*inputs)
        self.fetched = True
        return super().forward(*inputs)
"""

A_STEP_LATE = """
class wrap(Worker):
    before = None

    def forward(self, *inputs):
        mine = [p.detach().clone() for p in self.module.parameters()]
        for p, sent in zip(self.module.parameters(), self.before or mine):
            sent = sent.contiguous()
            dist.broadcast(sent, 0)
            if dist.get_rank():
                p.data.copy_(sent)
        self.before = mine
        return self.module(*inputs)
"""

ONE_OWNER_LEFT_OUT = """
class wrap(Gathered):
    def fetch(self):
        self.owners, everything = {p: o for p, o in self.owners.items() if o == 0}, self.owners
        super().fetch()
        self.owners = everything
"""

NOT_SAID = """
from ddp_core import Contract

class wrap(Gathered):
    contract = Contract(sync_buffers=False, disclaims=Gathered.contract.disclaims)
"""


@pytest.fixture
def fetching(lockstep, tmp_path):
    def run(body):
        path = tmp_path / "mine.py"
        path.write_text(FETCHED + body)
        return lockstep.verify(f"{path}:wrap", world_size=2, profile="quick")

    return run


@pytest.mark.parametrize("body", [FETCHES_ONCE, A_STEP_LATE, ONE_OWNER_LEFT_OUT], ids=["once", "late", "left_out"])
def test_weights_that_are_not_fetched(fetching, body):
    assert "LS101" in failed(fetching(body))


def test_who_fetches_from_owners_is_told_to_say_so(fetching):
    found = next(check for check in fetching(NOT_SAID).checks if check.code == "LS101")
    assert "Contract(sharded=True)" in found.failures[0].hint


def judged(lockstep, file, *codes):
    report = lockstep.verify(f"tests/{file}.py:wrap", world_size=2, profile="standard")
    return [next(str(check.verdict) for check in report.checks if check.code == code) for code in codes]


def test_a_state_saved_twice_while_weights_were_on_their_way(lockstep, only):
    """The second save, right after loading, has nothing under way: that says nothing about the first."""
    only("restart_twice")
    assert judged(lockstep, "controls/gathered_in_turn", "LS503", "LS504") == ["pass", "pass"]


def test_layers_that_run_in_another_order_than_they_are_registered_in(lockstep, only):
    """Were it the same order, weights that arrive in that of registration would seem to be in time."""
    only("realistic")
    assert judged(lockstep, "controls/gathered_in_turn", "LS101", "LS202") == ["pass", "pass"]
    assert judged(lockstep, "specimens/gathered_by_position", "LS101", "LS202") == ["fail", "fail"]
