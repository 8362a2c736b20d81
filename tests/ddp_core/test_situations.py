"""Models of every kind that wrappers get wrong, on every strategy of ours, compared with one process."""

from __future__ import annotations

import textwrap

import pytest

MODELS = {
    "plain": ("nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))", "m(data(r, s)).square().mean()"),
    "frozen": (
        "nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 3))",
        "m(data(r, s)).square().mean()",
    ),
    "multiply used": ("nn.Linear(4, 4)", "m(m(m(data(r, s)).tanh())).square().mean()"),
    "scalar and empty": ("Odd()", "m(data(r, s)).square().mean()"),
    "tied": ("Tied()", "m(data(r, s)).square().mean()"),
    "transposed": ("Transposed()", "m(data(r, s)).square().mean()"),
    "complex": ("Complex()", "m(data(r, s)).square().mean()"),
    "branch order": ("Branches()", "m(data(r, s), r + s).square().mean()"),
    "unused on one rank": ("Branches()", "m(data(r, s), r + s, 2).square().mean()"),
    "unused everywhere": ("Branches()", "m(data(r, s), 0, 3).square().mean()"),
    "checkpointed": ("Checkpointed(False)", "m(data(r, s)).square().mean()"),
    "checkpointed, re-entrant": ("Checkpointed(True)", "m(data(r, s).requires_grad_()).square().mean()"),
    "checkpointed, outermost": (
        "nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))",
        "checkpoint(m, data(r, s).requires_grad_(), use_reentrant=True).square().mean()",
    ),
    "dict output": ("Dict()", "m(data(r, s))['out'].square().mean()"),
    "sparse": (
        "nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True, mode='sum'), nn.Linear(4, 2))",
        "m(rows(r, s)).square().mean()",
    ),
    "sparse, unused on rank 1": ("Rare()", "m(data(r, s), rows(r, s), r).square().mean()"),
}
CLASSES = """
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5)); self.empty = nn.Parameter(torch.empty(0, 3))
            self.linear = nn.Linear(4, 7)
        def forward(self, x): return self.linear(x) * self.scale + self.empty.sum()
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inlet, self.outlet = nn.Linear(4, 4), nn.Linear(4, 4)
            self.outlet.weight = self.inlet.weight
        def forward(self, x): return self.outlet(self.inlet(x).tanh())
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 4).t()); self.bias = nn.Parameter(torch.randn(5))
            self.wide = nn.Parameter(torch.randn(3, 5).to(memory_format=torch.contiguous_format))
        def forward(self, x): return (x @ self.weight + self.bias) @ self.wide.t()
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex128))
            self.real = nn.Parameter(torch.randn(3))
            self.never = nn.Parameter(torch.randn(2, dtype=torch.complex128))
        def double(self): self.real.data = self.real.data.double(); return self
        def forward(self, x): return torch.view_as_real(x.to(torch.complex128) @ self.weight).sum(-1) * self.real
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(4, 4 if i % 2 else 4) for i in range(4)); self.head = nn.Linear(4, 2)
        def forward(self, x, first, how_many=4):
            order = [(first + i) % 4 for i in range(how_many)]
            return self.head(sum(self.parts[i](x) for i in order))
    class Checkpointed(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
            self.head, self.reentrant = nn.Linear(4, 2), reentrant
        def forward(self, x):
            for block in (*self.blocks, self.blocks[0]):
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            return self.head(x)
    class Dict(nn.Module):
        def __init__(self): super().__init__(); self.linear = nn.Linear(4, 2)
        def forward(self, x): return {"out": self.linear(x), "nothing": None}
    class Rare(nn.Module):
        def __init__(self):
            super().__init__(); self.linear = nn.Linear(4, 2)
            self.embed = nn.EmbeddingBag(9, 4, sparse=True, mode="sum")
        def forward(self, x, rows, r): return self.linear(x + self.embed(rows) if r != 1 else x)
    def rows(r, s): return torch.tensor([[0, 2 + r], [s, 5], [r, r]])
"""


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_one_process(on_ranks, name, world_size):
    build, loss = MODELS[name]
    weight_decay = "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n"
    if name.startswith("sparse"):  # SGD's weight decay does not accept sparse gradients
        weight_decay += "    SGD = torch.optim.SGD\n"
        weight_decay += "    torch.optim.SGD = lambda p, **k: SGD(p, lr=0.1)\n"
    body = textwrap.dedent(CLASSES) + weight_decay
    body += f"    same_as_one_process(lambda: {build}, lambda m, r, s: {loss})\n"
    on_ranks(body, world_size)
