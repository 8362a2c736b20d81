"""Own interpreters: each rank is a fresh Python, as under torchrun, where all others are forks of one process.

Forks agree on what fresh interpreters do not: the order of a set of strings, which is drawn anew in each of them
(PYTHONHASHSEED). A plan of buckets made by iterating over a set of names differs from rank to rank. Here the draw
follows the run's seed and the rank, unless PYTHONHASHSEED is set, so a verdict does not flip. Also in ``standard``
where the strategy's own text has a set, a hash or an order by address in it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a set, a hash or an order by address",
    order=80,
    workload="exact",
    repeat=False,
    most_ranks=8,
    fields={"tagged": True, "small_buckets": True, "own_interpreters": True},
)
