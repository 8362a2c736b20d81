"""Recognition of poison, of equal contents, and of overlapping tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifier.journal import Journal
from verifier.marker import holds_poison
from verifier.observe.cargo import Cargo
from verifier.observe.observer import POISON_FLOAT32
from verifier.observe.poison import WHOLE, digest, is_spoilt, overlaps, spoil
from verifier.raw import bytes_of


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.uint8,
     torch.int8, torch.int16, torch.int32, torch.float8_e4m3fn],
)  # fmt: skip
def test_poison_is_found_again_and_a_write_to_one_element_too(dtype):
    for tensor in (torch.ones(7).to(dtype), torch.ones(3, 4).to(dtype).t(), torch.ones(()).to(dtype)):
        version = tensor._version
        assert spoil(tensor)
        assert is_spoilt(tensor)
        assert tensor._version == version
        if dtype.is_floating_point or dtype.is_complex:
            assert torch.isnan(tensor.to(torch.complex64 if dtype.is_complex else torch.float32)).all()
        tensor.reshape(-1)[-1:].data.zero_() if tensor.is_contiguous() else tensor.data[-1].zero_()
        assert not is_spoilt(tensor)


def test_booleans_have_no_poison():
    assert not spoil(torch.ones(3, dtype=torch.bool))


def test_the_payload_is_a_nan_of_our_own():
    tensor = torch.zeros(2)
    spoil(tensor)
    copied, calculated = tensor.clone(), tensor * 0.5
    assert (calculated.numpy().view(np.uint32) == POISON_FLOAT32).all()
    assert holds_poison(copied.numpy())
    assert holds_poison(calculated.numpy())
    assert not holds_poison(np.array([np.nan, 1.0]))


def test_digests_and_overlaps():
    large = torch.zeros(1_000_000)
    before = digest(large)
    large[-1] = 1
    assert digest(large) != before
    assert digest(large[::2]) is None
    one = torch.zeros(1, 4)[:, 1]  # contiguous, with a stride of 4
    assert digest(one) == digest(torch.zeros(1))
    assert digest(torch._neg_view(large)) is None
    buffer = torch.zeros(8)
    assert overlaps(buffer[2:4], [buffer])
    assert not overlaps(buffer[:4], [buffer[4:]])


def test_one_element_of_an_input_of_megabytes_is_seen():
    large = torch.zeros(WHOLE // 4)
    before = digest(large)
    large[100_000] = 1
    assert digest(large) != before


@pytest.mark.parametrize("brought", [1.0, float("nan")])
def test_what_a_twin_has_brought_is_no_write(brought):
    """Two collectives into one tensor (tied weights) bring the same values; NaN counts as equal to NaN."""
    tensor = torch.zeros(4)
    cargos = [Cargo([], [tensor], poisoned=True) for _ in range(2)]
    for cargo in cargos:
        cargo.spoil()
        cargo.shadows[0].fill_(brought)
    assert [cargo.unload() for cargo in cargos] == [None, None]
    cargo = Cargo([], [tensor], poisoned=True)
    cargo.spoil()
    tensor[2] = 5.0
    assert cargo.unload() == "output"


def test_who_frees_memory_by_resizing_can_do_so_after_we_have_looked(tmp_path):
    weight, sent = torch.ones(8), torch.ones(8)
    Journal(tmp_path).tensor("weight", -1, "w", weight, keep=True)
    cargo = Cargo([sent], [torch.zeros(8)], poisoned=True)
    cargo.spoil()
    assert cargo.unload() is None
    for tensor in (weight, sent):
        tensor.untyped_storage().resize_(0)
        assert tensor.untyped_storage().nbytes() == 0


def test_the_bytes_of_a_tensor_outlive_it():
    held = bytes_of(torch.full((1000,), 2.0))
    others = [torch.zeros(1000) for _ in range(50)]
    assert np.frombuffer(held, np.float32).tolist() == [2.0] * 1000
    assert len(others) == 50
    for tensor in (torch.zeros(0), torch.zeros(1), torch.zeros(1, 4)[:, 1], torch.arange(3, dtype=torch.bfloat16)):
        assert (
            bytes(bytes_of(tensor))
            == torch.tensor(tensor.tolist(), dtype=tensor.dtype).view(torch.uint8).numpy().tobytes()
        )
