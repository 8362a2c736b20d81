"""The devices on which ranks train, as far as it can be tested without a GPU; ``tests/gpu`` tests the rest."""

from __future__ import annotations

import importlib.machinery
import json
import subprocess
import sys

import pytest

from verifier import devices
from verifier.errors import UsageError
from verifier.nodes import num_on_each, place
from verifier.request import Builtin, Request
from verifier.scenario import Scenario


def request(**settings):
    return Request(strategy=Builtin(name="naive"), **settings)


@pytest.mark.parametrize(
    ("settings", "device", "backend"),
    [
        ({}, "cpu", "gloo"),
        ({"device": "cpu"}, "cpu", "gloo"),
        ({"backend": "gloo"}, "cpu", "gloo"),
        ({"device": "cuda"}, "cuda", "nccl"),
        ({"backend": "nccl"}, "cuda", "nccl"),
        ({"device": "cuda", "backend": "gloo"}, "cuda", "gloo"),
        ({"backend": devices.BOTH}, "cuda", "cpu:gloo,cuda:nccl"),
    ],
)
def test_what_is_not_asked_for_goes_with_what_is(settings, device, backend):
    assert devices.chosen(request(**settings)) == (device, backend)


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_nccl_has_nothing_to_do_on_the_cpu(backend):
    with pytest.raises(UsageError, match=rf"'{backend}'.*'cpu'.*--device cuda"):
        devices.chosen(request(device="cpu", backend=backend))


@pytest.mark.parametrize(
    ("visible", "number"), [("", 0), ("0", 1), ("0,1", 2), ("GPU-aa,GPU-bb", 2), ("-1", 0), ("2,-1,3", 1)]
)
def test_gpus_are_counted_as_cuda_counts_them(monkeypatch, visible, number):
    monkeypatch.setenv(devices.HIDING, visible)
    assert devices.num_visible() == number


@pytest.fixture
def torch_of(monkeypatch, tmp_path):
    """A function that replaces the contents of torch's ``version.py``."""

    def say(text):
        (tmp_path / "version.py").write_text(text)
        spec = importlib.machinery.ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)

    return say


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("cuda: Optional[str] = '13.0'\n", True),
        ("cuda = '12.8'\n", True),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", False),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", True),
    ],
)
def test_what_torch_was_built_for_is_read_and_not_asked(torch_of, line, has):
    torch_of(f"__version__ = '2.13.0'\n{line}")
    assert devices.torch_has_cuda() is has


def test_who_asks_for_a_gpu_where_none_is_is_told_why(torch_of, monkeypatch):
    torch_of("cuda = None\n")
    with pytest.raises(UsageError, match=r"built for CUDA.*pip install torch"):
        devices.require_gpus()
    torch_of("cuda = '13.0'\n")
    monkeypatch.setenv(devices.HIDING, "-1")
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=-1 hides them all"):
        devices.require_gpus()
    monkeypatch.setenv(devices.HIDING, "0,1")
    assert devices.require_gpus() == 2


def scenario(world_size, **fields):
    return Scenario(
        name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=world_size, **fields
    )


def test_ranks_that_share_a_gpu_are_told_of_nodes():
    assert [num_on_each(scenario(4), gpus) for gpus in (None, 8, 4, 2, 1, 0)] == [4, 4, 4, 2, 1, 1]
    assert num_on_each(scenario(4, several_nodes=True), 8) == 2
    told = [place(scenario(5), rank, 2) for rank in range(5)]
    assert [t["LOCAL_RANK"] for t in told] == ["0", "1", "0", "1", "0"]
    assert [t["LOCAL_WORLD_SIZE"] for t in told] == ["2", "2", "2", "2", "1"]
    assert [t["GROUP_RANK"] for t in told] == ["0", "0", "1", "1", "2"]
    assert {t["GROUP_WORLD_SIZE"] for t in told} == {"3"}


def test_on_the_cpu_a_process_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    devices.settle(scenario(2))
    assert devices.num_gpus(scenario(2)) is None


def warmed_up(code):
    """The last line that ``code`` prints, in a process of its own: warming up installs the observer's hook for good."""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.parametrize("meets", [True, False])
def test_where_a_driver_is_the_fork_server_takes_no_step(meets):
    """On a machine with a GPU a step would start the driver in a thread, and nothing could be forked then."""
    code = f"""
from verifier.forkserver import warmup
taken = []
warmup._step = lambda: taken.append(1)
warmup.torch_meets_a_driver = lambda: {meets}
warmup.warm_up()
print(len(taken))
"""
    assert warmed_up(code) == (0 if meets else 1)


def test_imports_of_the_fork_server_ask_for_no_device():
    """On a machine with a GPU each of these calls starts its driver."""
    code = """
import json, sys
import torch
asked = []
def telling(home, name):
    plain = getattr(home, name)
    def call(*args, **kwargs):
        asked.append(name)
        return plain(*args, **kwargs)
    setattr(home, name, call)
for name in ("is_available", "device_count", "current_device", "_lazy_init", "get_device_properties"):
    telling(torch.cuda, name)
for name in ("is_available", "device_count", "current_accelerator"):
    telling(torch.accelerator, name)
from verifier.forkserver import warmup
warmup.torch_meets_a_driver = lambda: True
warmup.warm_up()
print(json.dumps(asked))
"""
    assert warmed_up(code) == []
