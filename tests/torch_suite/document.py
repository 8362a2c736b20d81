"""The table in docs/torch-ddp-tests.md: written from verdicts, and read back by the test that holds it true.

Special here: no date, no path and no time is in it, so that two runs on two machines write the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.torch_suite.judging import Verdict
from tests.torch_suite.selection import adaptations_of

COMMAND = "python -m tests.torch_suite --write docs/torch-ddp-tests.md"
OUTCOMES = ("passed", "failed", "not applicable")
HEADER = """# torch's own DDP tests, with `DataParallel` in DDP's place

torch ships its tests of `DistributedDataParallel` in `torch/testing/_internal/distributed/distributed_test.py`. This
table has all of them: every test there that uses DDP, itself or through a helper. Written by

    {command}

torch {version}, world size {world_size}, backend gloo, CPU; `DataParallel` with the `Bucketed` strategy.

| | torch's DDP | `DataParallel` |
|---|---:|---:|
{counts}
| failed, by a refusal that says why | | {refused} |
| all | {total} | {total} |

- Most of these tests ask for GPUs. They are *moved*: `.cuda()`, `.to(rank)` and `device=rank` stay on the CPU, and so
  do the models. Tests that torch skips on Linux are run all the same. The column of torch's DDP, run in the same way,
  tells which tests can pass here at all.
- *failed*: torch's DDP passes it here, ours does not, and the test asks for nothing but public behaviour.
  Where ours refuses something in so many words, and it can be passed over (the adapter pickles, or unwraps), the test
  is run a second time to see the rest of it; it counts as failed all the same.
- *not applicable*: the test asks for something that `DataParallel` does not offer (it ran up to there), expects DDP's
  own error or warning (it ran up to that assertion), or cannot pass on a CPU: torch's DDP fails it as well.
- `find_unused_parameters` and `static_graph` are accepted and need no option here, `_remove_autograd_hooks()` is
  `unwrap()`, `join(enable=False)` is no context. Tests of DDP over RPC (`ddp_under_dist_autograd_test.py`,
  `rpc_test.py`) are no part of this.

| test | as shipped | torch's DDP | `DataParallel` | why |
|---|---|---|---|---|
"""
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| (\w[\w ]*) \| \*{0,2}(\w[\w ]*?)\*{0,2} \| (.*) \|$", re.MULTILINE)


def write(path: Path, version: str, world_size: int, verdicts: Sequence[Verdict]) -> None:
    theirs, ours = Counter(v.torch for v in verdicts), Counter(v.ours for v in verdicts)
    refused = sum(verdict.why.startswith("refuses ") for verdict in verdicts)
    counts = "\n".join(f"| {outcome} | {theirs[outcome] or ''} | {ours[outcome]} |" for outcome in OUTCOMES)
    facts = {"command": COMMAND, "version": version, "world_size": world_size, "counts": counts}
    facts |= {"total": len(verdicts), "refused": refused}
    path.write_text(HEADER.format(**facts) + "".join(_row(verdict) for verdict in verdicts))


def _row(verdict: Verdict) -> str:
    where = {"CPU": "CPU", "GPUs": "GPUs, moved"}.get(verdict.asks_for, f"{verdict.asks_for}, moved")
    why = [verdict.why] if verdict.why else []
    if changes := adaptations_of(verdict.test):
        why.append("*adapted:* " + "; ".join(changes))
    ours = f"**{verdict.ours}**" if verdict.ours == "failed" else verdict.ours
    return f"| `{verdict.test}` | {where} | {verdict.torch} | {ours} | {'. '.join(why)} |\n"


def read(path: Path) -> dict[str, str]:
    """Each test of the document and its outcome with ours."""
    return {match[1]: match[4] for match in ROW.finditer(path.read_text())}


def read_settings(path: Path) -> tuple[str, int]:
    """(torch's version, world size) that the document was written with."""
    match = re.search(r"^torch ([^,]+), world size (\d+),", path.read_text(), re.MULTILINE)
    assert match is not None
    return match[1], int(match[2])


def is_worse(now: str, documented: str) -> bool:
    """``failed`` is documented as the worst. What passed has to pass, what did not apply must not fail."""
    return documented != "failed" and now != documented and now != "passed"
