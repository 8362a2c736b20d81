"""The writing side of a recording: one rank's journal, flushed line by line.

Special here: nothing is buffered in this process. A rank may be killed, abort inside gloo or call ``os._exit`` at any
moment, and what it did up to then must be on disk (``appending``). The functions of torch that are needed are kept from
before a strategy is loaded, which may replace ``Tensor.detach``. Digests are xxh3_128 of the bytes (0.0 and -0.0
differ, equal NaNs agree): ``torch.equal`` gets both wrong, ``torch.hash_tensor`` is blind to swapped elements.
"""

from __future__ import annotations

import math
from json import dumps
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import xxhash

from verifier.appending import AppendedFile
from verifier.errors import OurFault
from verifier.ramps import packed
from verifier.raw import bytes_of

LATE = ("landed", "outcome")  # kinds of lines that may follow the seals
_T = torch.Tensor
_detach, _to, _contiguous, _to_dense, _view_as_real = _T.detach, _T.to, _T.contiguous, _T.to_dense, torch.view_as_real


class Journal:
    """Writes ``journal.jsonl`` and ``blobs.bin`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = AppendedFile(folder / "journal.jsonl")
        self._blobs = AppendedFile(folder / "blobs.bin")
        self._digests: dict[tuple[str, int, str], str] = {}
        self.replaced: set[tuple[str, int]] = set()  # (what, step): recorded again, with other contents

    def write(self, kind: str, **fields: Any) -> None:
        self._lines.append((dumps({"kind": kind, **fields}) + "\n").encode(), late=kind in LATE)

    def note(self, name: str, value: Any) -> None:
        self.write("note", name=name, value=value)

    def outcome(self, status: str, detail: str | None = None, **fields: Any) -> dict[str, Any]:
        """Write the rank's last line; without it, the rank did not finish. Return the seals in it.

        What a strategy's thread issues after it is not recorded.
        """
        seals = {"lines": self._lines.seal(), "blobs": self._blobs.seal()}
        self.write("outcome", status=status, detail=detail, at=monotonic(), seals=seals, **fields)
        return seals

    def tensor(
        self, what: str, step: int, name: str, tensor: torch.Tensor, *, keep: bool, only_if_changed: bool = False
    ) -> None:
        """Write down ``tensor``; of a DTensor this rank's shard, and where in the whole it lies.

        Of several entries for the same (what, step, name) the last one counts.
        """
        part, shard = local_shard(tensor)
        data = tensor_bytes(part)
        digest = xxhash.xxh3_128_hexdigest(data)
        if only_if_changed:
            if self._digests.get((what, step, name)) == digest:
                return
            self.replaced.add((what, step))
        self._digests[what, step, name] = digest
        self.write(
            "tensor",
            shard=shard,
            what=what,
            step=step,
            name=name,
            dtype=dtype_name(tensor),
            shape=list(part.shape),
            digest=digest,
            blob=self.blob(data, part.dtype) if keep else None,
        )

    def holds(self, what: str, step: int) -> bool:
        """Return whether anything was written down as ``what`` of ``step``."""
        return any(key[:2] == (what, step) for key in self._digests)

    def has_moved(self, what: str, before: int, after: int) -> bool:
        """Return whether any tensor of ``what`` differs between the two steps."""
        held = {name: digest for (w, s, name), digest in self._digests.items() if (w, s) == (what, before)}
        return any(self._digests.get((what, after, name)) != digest for name, digest in held.items())

    def blob(self, data: memoryview, dtype: torch.dtype) -> list[int | str]:
        """Append ``data``; return where it is, as [offset, size in bytes], and "ramps" if it is stored as those."""
        ramps = packed(data) if dtype is torch.float64 else None
        if ramps is not None:
            return [self._blobs.append(ramps), len(ramps), "ramps"]
        return [self._blobs.append(data), len(data)]


def local_shard(tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, list[int]] | None]:
    """Return a DTensor's local part with the whole's shape and this part's offset in it; any other tensor as it is.

    Where ranks hold terms of a sum that is yet to be made (``Partial``), the number it is divided by is there, too. No
    collective is used: the verifier has no traffic of its own among the strategy's.
    """
    if not hasattr(tensor, "device_mesh"):  # tested in this way, because importing DTensor takes as long as a run
        return landed(tensor), None
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    shard = {"shape": list(tensor.shape), "offset": [int(o) for o in offset]}
    if any(placement.is_partial() for placement in tensor.placements):
        counted = [p.is_partial("avg") or p.is_replicate() for p in tensor.placements]
        shard["adds_up_over"] = [math.prod(tensor.device_mesh.size(d) for d, often in enumerate(counted) if often)]
    return landed(tensor.to_local()), shard


def landed(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` once it is complete. The result of a functional collective (an AsyncCollectiveTensor) is waited
    for on its first use, by an optimizer or here.
    """
    plain: torch.Tensor = tensor.trigger_wait() if hasattr(tensor, "trigger_wait") else tensor
    return plain


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the elements of ``tensor`` in row-major order, as bytes on the CPU."""
    try:
        return _bytes(landed(tensor))
    except RuntimeError as error:
        if type(tensor) in (torch.Tensor, torch.nn.Parameter):
            raise
        raise OurFault(f"a tensor of class {type(tensor).__name__} cannot be written down: {error}") from error


def _bytes(tensor: torch.Tensor) -> memoryview:
    plain = _to(_detach(tensor), "cpu")
    plain = _contiguous(_to_dense(plain) if plain.is_sparse else plain)
    return bytes_of(_view_as_real(plain) if plain.dtype.is_complex else plain)


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def digest(tensor: torch.Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(tensor_bytes(tensor))
