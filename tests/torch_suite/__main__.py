"""``python -m tests.torch_suite [TEST ...]``: run torch's DDP tests with ours, and with torch's DDP beside it.

Special here: without a name all are run, in some minutes. ``--write FILE`` makes the document, ``--json FILE`` a list
of verdicts for other programs, ``--list`` only names the tests. ``--trace`` prints the whole traceback of a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from tests.torch_suite import document
from tests.torch_suite.judging import Verdict, deserves_second_look, judge
from tests.torch_suite.ranks import Result, Subject, run_test
from tests.torch_suite.selection import load, selected_tests


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_suite", description=__doc__)
    parser.add_argument("tests", nargs="*", help="names of tests; all of them if there is none")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the document")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts as JSON")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--no-control", action="store_true", help="take for granted that torch's DDP passes")
    parser.add_argument("--trace", action="store_true", help="print whole tracebacks")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a test may take")
    return parser.parse_args()


def main() -> int:
    chosen, asks_for = options(), selected_tests()
    if unknown := set(chosen.tests) - set(asks_for):
        print(f"no such test of DDP in this torch: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    names = chosen.tests or list(asks_for)
    if chosen.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tests = load(chosen.world_size, Path(folder))
        verdicts = [one(tests, name, asks_for[name], chosen) for name in names]
    if chosen.json:
        chosen.json.write_text(json.dumps([verdict._asdict() for verdict in verdicts], indent=1))
    if chosen.write:
        import torch

        document.write(chosen.write, torch.__version__.split("+")[0], chosen.world_size, verdicts)
    return 0


def one(tests: ModuleType, name: str, asks_for: str, chosen: argparse.Namespace) -> Verdict:
    def run(subject: Subject) -> Result:
        result = run_test(tests, name, subject, chosen.world_size, chosen.limit)
        if chosen.trace and result.outcome == "failed":
            print(f"--- {name}, {subject}\n{result.text}")
        return result

    start = time.monotonic()
    ours = run("ours")
    theirs = Result("passed") if chosen.no_control else run("torch")
    second = run("ours, lenient") if deserves_second_look(ours) and theirs.outcome == "passed" else None
    verdict = judge(name, asks_for, theirs, ours, second)
    print(f"{verdict.ours:14} {name} ({time.monotonic() - start:.1f} s) {verdict.why}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
