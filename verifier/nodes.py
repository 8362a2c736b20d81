"""What torchrun would tell a rank about its place: its rank in the job, its rank on its node, and the node's number.

Special here: the nodes are only declared. All ranks run on this machine, and code that only looks at these variables
(or at ``dist.get_node_local_rank()``, which reads them) cannot notice.
"""

from __future__ import annotations

import os

from verifier.scenario import Scenario

MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # torch's defaults; some look for ranks by these
MEANT = (
    "it is right where all ranks are on one node: look for LOCAL_RANK, LOCAL_WORLD_SIZE, or the devices of a machine, "
    "where RANK, WORLD_SIZE or all ranks are meant"
)


def num_on_each(scenario: Scenario, num_gpus: int | None = None) -> int:
    """Ranks on a node: all of them; on several nodes half of them, or one if their number is odd. With ``num_gpus`` on
    a node, at most one per GPU.
    """
    size = scenario.world_size
    here = (size // 2 if size % 2 == 0 else 1) if scenario.several_nodes else size
    return here if num_gpus is None else min(here, max(num_gpus, 1))


def place(scenario: Scenario, rank: int, num_gpus: int | None = None) -> dict[str, str]:
    """The environment of ``rank``, with torchrun's names. The last node may have fewer ranks than the others."""
    here = num_on_each(scenario, num_gpus)
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": scenario.world_size,
        "LOCAL_RANK": rank % here,
        "LOCAL_WORLD_SIZE": min(here, scenario.world_size - rank // here * here),
        "GROUP_RANK": rank // here,
        "GROUP_WORLD_SIZE": -(-scenario.world_size // here),
    }
    told = {name: str(number) for name, number in numbers.items()}
    return {**told, **{name: os.environ.get(name, value) for name, value in MASTER.items()}}
