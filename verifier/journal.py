"""The writing side of a recording: one rank's journal, flushed line by line.

Special here: nothing is buffered in this process. A rank may be killed, abort inside gloo or call ``os._exit`` at
any moment, and what it did up to then must be on disk. Digests are xxh3_128 of the bytes (0.0 and -0.0 differ,
equal NaNs agree): ``torch.equal`` gets both wrong, ``torch.hash_tensor`` is blind to swapped elements.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import xxhash


class Journal:
    """Writes ``journal.jsonl`` and ``blobs.bin`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._lines = os.open(folder / "journal.jsonl", flags, 0o644)
        self._blobs = os.open(folder / "blobs.bin", flags, 0o644)
        self._blob_end = os.fstat(self._blobs).st_size

    def write(self, kind: str, **fields: Any) -> None:
        os.write(self._lines, (json.dumps({"kind": kind, **fields}) + "\n").encode())

    def note(self, name: str, value: Any) -> None:
        self.write("note", name=name, value=value)

    def outcome(self, status: str, detail: str | None = None, **fields: Any) -> None:
        """The rank's last word. Its absence means that the rank did not come to its end."""
        self.write("outcome", status=status, detail=detail, at=time.monotonic(), **fields)

    def tensor(self, what: str, step: int, name: str, tensor: torch.Tensor, *, keep: bool) -> None:
        """Write down ``tensor``; of a DTensor this rank's shard, and where in the whole it lies."""
        part, shard = local_shard(tensor)
        data = tensor_bytes(part)
        self.write(
            "tensor",
            shard=shard,
            what=what,
            step=step,
            name=name,
            dtype=dtype_name(tensor),
            shape=list(part.shape),
            digest=xxhash.xxh3_128_hexdigest(data),
            blob=self.blob(data) if keep else None,
        )

    def blob(self, data: memoryview) -> list[int]:
        """Append ``data``; return where it is, as [offset, size in bytes]."""
        start, left = self._blob_end, data
        while left:
            left = left[os.write(self._blobs, left) :]
        self._blob_end += len(data)
        return [start, len(data)]


def local_shard(tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, list[int]] | None]:
    """A DTensor's local part with the whole's shape and this part's offset in it; any other tensor as it is.

    No collective: the verifier has no traffic of its own among the strategy's.
    """
    if not hasattr(tensor, "device_mesh"):  # asked for in this way, because importing DTensor takes as long as a run
        return tensor, None
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tensor.to_local(), {"shape": list(tensor.shape), "offset": [int(o) for o in offset]}


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The elements of ``tensor`` in row-major order, as bytes on the CPU."""
    plain = tensor.detach().to("cpu").contiguous().reshape(-1)
    if plain.is_complex():
        plain = torch.view_as_real(plain).reshape(-1)
    return plain.view(torch.uint8).numpy().data


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
