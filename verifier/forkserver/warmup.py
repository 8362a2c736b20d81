"""What the fork server does once, so that no rank has to: import, and take one small training step.

Special here: a first optimizer imports some 800 modules, and a first backward initialises the autograd engine.
Everything runs on one thread: a forked child inherits no threads, and would wait for them for ever. The garbage
collector is off meanwhile (importing torch makes a million objects and no garbage: a fifth of the time) and what is
there at the end is frozen, so that collections in ranks do not copy shared pages.
"""

from __future__ import annotations

import gc
import importlib
import warnings


def warm_up() -> None:
    gc.disable()
    _import_and_step()
    gc.freeze()
    gc.enable()


def _import_and_step() -> None:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._dynamo")  # else every first optimizer imports it, in every rank
    importlib.import_module("verifier.worker")
    for workload in ("exact", "branches", "llama"):
        importlib.import_module(f"verifier.workloads.{workload}")
    for strategy in ("naive", "flat", "hook", "async_hook", "bucketed", "torch_ddp"):
        importlib.import_module(f"ddp_core.strategies.{strategy}")
    layer = nn.Linear(2, 2)
    for make in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = make(layer.parameters(), lr=0.1)
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
