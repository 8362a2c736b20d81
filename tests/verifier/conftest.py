"""Shared fixtures: a strategy that is correct but for one act of misbehaviour, and a restriction to some situations."""

from __future__ import annotations

import os
import textwrap

import pytest

from verifier.catalogue import Catalogue

WRAPPER = """
import os, signal, subprocess, sys, time
import torch, torch.distributed as dist
from ddp_core import Contract

CONTRACT = Contract(disclaims={"unused_parameters"})

class W:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
    def __call__(self, *inputs):
        return self.model(*inputs)
    def sync_gradients(self):
        rank = dist.get_rank()
        {act}
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

def wrap(model):
    return W(model)
"""


@pytest.fixture
def misbehaving(tmp_path):
    """Write a strategy that runs ``act`` when it is to synchronise gradients; return its path."""

    def make(act, source=WRAPPER, name="mine.py"):
        path = tmp_path / name
        path.write_text(source.replace("{act}", textwrap.indent(act, " " * 8).strip()))
        return str(path)

    return make


@pytest.fixture
def only(monkeypatch):
    """A function that restricts later verifications to the named situations, as far as the profile includes them."""
    names = Catalogue.names

    def limit(*situations):
        monkeypatch.setattr(Catalogue, "names", lambda self: [*situations] if self.kind == "situation" else names(self))

    return limit


OF_EACH_KIND = [
    *("plain", "different_start", "branch_order", "realistic", "later_steps", "delayed", "accumulation", "adamw"),
    *("clipping", "groups", "schedule", "evaluation", "resume", "restart", "overflow", "buffers"),
    *("unused", "mixed_dtypes", "complex", "strided", "sparse", "oddities"),
]


@pytest.fixture
def in_short(only):
    """Restrict later verifications to situations of each kind, about a fifth of all: what else they meet is not tried
    here, unless LOCKSTEP_ALL_ROWS=1 says so.
    """
    if not os.environ.get("LOCKSTEP_ALL_ROWS"):
        only(*OF_EACH_KIND)


def ranks(report, place=0):
    return {rank.rank: rank for rank in report.scenarios[place].ranks}
