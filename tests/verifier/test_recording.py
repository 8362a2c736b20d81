"""Recordings are read back as written; an incomplete part is absent, and never a crash."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifier import reading
from verifier.errors import OurFault
from verifier.journal import Journal, tensor_bytes
from verifier.request import Builtin
from verifier.scenario import Scenario


@pytest.fixture
def folder(tmp_path):
    Scenario(name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=1).save(tmp_path)
    return tmp_path


def journal_of(folder):
    return Journal(folder / "subject" / "rank0")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6, dtype=torch.float32).view(2, 3),
        torch.arange(6, dtype=torch.float64).view(2, 3).t(),
        torch.tensor(3.5),
        torch.empty(0),
        torch.tensor([1.5, -2.25, 1e30], dtype=torch.bfloat16),
        torch.tensor([1.5, float("nan"), float("inf")]),
        torch.arange(10)[::2],
    ],
)
def test_tensors_come_back(folder, tensor):
    journal = journal_of(folder)
    journal.tensor("weight", 0, "w", tensor, keep=True)
    journal.tensor("gradient", 0, "w", tensor, keep=False)
    rank = reading.read(folder).ranks[0]
    values = rank.tensor("weight", 0, "w").values
    assert values.shape == tuple(tensor.shape)
    np.testing.assert_array_equal(values.astype(np.float64), tensor.to(torch.float64).numpy())
    assert rank.tensor("gradient", 0, "w").values is None
    assert rank.tensor("gradient", 0, "w").digest == rank.tensor("weight", 0, "w").digest


def digest(folder, tensor, name):
    journal_of(folder).tensor("weight", 0, name, tensor, keep=False)
    return reading.read(folder).ranks[0].tensor("weight", 0, name).digest


def test_digests_see_bytes(folder):
    zero, negative = torch.tensor([0.0]), torch.tensor([-0.0])
    assert digest(folder, zero, "a") != digest(folder, negative, "b")
    nan = torch.tensor([float("nan")])
    assert digest(folder, nan, "c") == digest(folder, nan.clone(), "d")
    assert digest(folder, torch.tensor([1.0, 2.0]), "e") != digest(folder, torch.tensor([2.0, 1.0]), "f")
    flipped = torch.tensor([-1.0, -2.0])
    assert digest(folder, torch.tensor([1.0, 2.0]), "g") != digest(folder, flipped, "h")


@pytest.mark.parametrize("cut", range(2, 200, 7))
def test_a_journal_cut_anywhere_is_read_up_to_there(folder, cut):
    journal = journal_of(folder)
    journal.tensor("weight", 0, "w", torch.ones(3), keep=True)
    journal.outcome("completed")
    path = folder / "subject" / "rank0" / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    recording = reading.read(folder)
    assert not recording.complete


def test_what_a_thread_issues_after_the_end_is_not_recorded(folder):
    journal = journal_of(folder)
    journal.tensor("weight", 0, "w", torch.ones(2), keep=True)
    journal.outcome("completed")
    journal.note("issued", "too late")
    journal.tensor("weight", 1, "w", torch.ones(2), keep=True)
    journal.write("landed", seq=0)
    (rank,) = reading.read(folder).ranks
    assert rank.completed  # and not: "written to by something other than the verifier"
    assert ("issued" in rank.notes, {*rank.tensors}) == (False, {("weight", 0, "w")})


def test_a_blob_that_is_not_all_there_is_absent(folder):
    journal_of(folder).tensor("weight", 0, "w", torch.ones(300), keep=True)
    blobs = folder / "subject" / "rank0" / "blobs.bin"
    blobs.write_bytes(blobs.read_bytes()[:100])
    assert reading.read(folder).ranks[0].tensor("weight", 0, "w").values is None


def test_a_rank_that_wrote_nothing_is_incomplete(folder):
    recording = reading.read(folder)
    assert not recording.complete
    assert recording.parameter_names == []


def test_complex_tensors_are_written_as_bytes():
    assert len(tensor_bytes(torch.ones(3, dtype=torch.complex64))) == 24
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.bool):  # a single element may have any stride
        for one in (
            torch.ones(1, 4, dtype=dtype)[:, 1],
            torch.ones((), dtype=dtype).expand(1),
            torch.ones((), dtype=dtype),
        ):
            assert bytes(tensor_bytes(one)) == bytes(tensor_bytes(torch.ones(1, dtype=dtype)))


class Opaque(torch.Tensor):
    """A tensor like wrappers of quantised or late values: without memory of its own, and not readable by numpy."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls()


def test_what_cannot_be_read_is_our_fault_and_no_error_of_theirs():
    with pytest.raises(OurFault, match="a tensor of class Opaque cannot be written down"):
        tensor_bytes(Opaque())


class Late(Opaque):
    """Stands for the result of a functional collective, which can be waited for."""

    def trigger_wait(self):
        return torch.full((3,), 2.0)


def test_what_a_functional_collective_gives_is_waited_for():
    assert bytes(tensor_bytes(Late())) == bytes(tensor_bytes(torch.full((3,), 2.0)))
