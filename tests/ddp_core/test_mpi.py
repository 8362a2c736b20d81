"""The communicator over a real MPI: ``mpi_ranks.py`` under ``mpirun``, compared with gloo and with a single process.

One ``mpirun`` per world size serves all checks, so torch is imported once per rank and not once per check.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from ddp_core.mpi import MpiCommunicator
from tests.conftest import ROOT

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here: install openmpi-bin")


def mpirun(num_ranks, *arguments):
    """Run ``python -m mpi4py ARGUMENTS`` on ``num_ranks`` ranks; return the finished job."""
    command = ["mpirun", "-n", str(num_ranks), "--oversubscribe", "--allow-run-as-root"]
    return subprocess.run(
        [*command, sys.executable, "-m", "mpi4py", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_mpirun
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_over_a_real_mpi(world_size, tmp_path):
    done = mpirun(world_size, "-m", "tests.ddp_core.mpi_ranks", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) >= 10
    failures = [f"{name} {failure}" for name, failure in results.items() if failure]
    assert not failures, "\n".join(failures)


@needs_mpirun
def test_a_rank_that_raises_ends_the_job(tmp_path):
    """Under ``-m mpi4py`` an exception on one rank aborts all ranks, so that none waits in a collective for ever."""
    script = tmp_path / "script.py"
    script.write_text(
        "from ddp_core.mpi import MpiCommunicator\n"
        "comm = MpiCommunicator()\n"
        "assert comm.rank == 0, 'rank 1 stops here'\n"
        "comm.barrier()\n"
    )
    done = mpirun(2, str(script))
    assert done.returncode != 0
    assert "rank 1 stops here" in done.stderr


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'lockstep-ddp\[mpi\]'"):
        MpiCommunicator()


def test_mpi4py_is_imported_only_when_asked_for():
    code = "import sys, ddp_core.mpi, ddp_core.synchronizer; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
