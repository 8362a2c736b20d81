"""``lockstep simulate``: published figures by command, plots drawn, mistakes refused with the remedy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_core.cost import Contention, Link
from verifier.errors import UsageError
from verifier.lab import plots, quantities, simulations


def test_the_published_table_by_command(command):
    text = command("simulate", "sweep").stdout
    shown = [line.split()[-1] for line in text.splitlines()[3:11]]
    assert shown == ["142.9", "126.6", "121.6", "121.6", "121.6", "141.4", "165.7", "165.7"]
    assert "no overlap 234.3 ms; backward alone 91.7 ms" in text


def test_the_memory_wall_by_command(command):
    found = json.loads(command("simulate", "memory", "--format", "json").stdout)
    assert found["facts"]["ddp"]["state_bytes"] == pytest.approx(1.12e12)
    assert "passed with zero3, which sends 1.50 times" in " ".join(found["notes"])


def test_latency_moves_the_best_size(command):
    words = ("simulate", "sweep", "--from", "0.3M", "--to", "20M", "--alpha-ms", "1.4", "--alpha-ms", "6")
    found = json.loads(command(*words, "--format", "json").stdout)
    best = [note.split("from ")[1].split(" to ")[0] for note in found["notes"][:2]]
    assert [size.split()[1] for size in best] == ["MB", "MB"]
    assert float(best[1].split()[0]) > 2 * float(best[0].split()[0])


@pytest.mark.parametrize(
    "what",
    ["timeline", "sweep", "strategies", "scaling", "accumulation", "memory", "hierarchy", "crossing"],
)
def test_every_question_has_a_plot_and_teaches(what, command, tmp_path):
    pytest.importorskip("matplotlib")
    done = command("simulate", what, "--plot", "plot.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    text = command("simulate", what, "--help").stdout
    assert "Example" in text
    assert "--plot" in text


def test_strategies_stand_beside_one_another(command):
    facts = json.loads(command("simulate", "strategies", "--format", "json").stdout)["facts"]
    naive, flat, each, given, best = facts.values()
    assert best <= min(flat, each, given)
    assert naive > flat, "latency is paid once, and not fifty times"
    assert naive * 1e3 == pytest.approx(234.3, abs=0.05)


def test_scaling_lists_its_assumptions(command):
    text = command("simulate", "scaling", "--largest", "4096", "--algorithm", "hierarchical").stdout
    assert "4,096" in text
    assert text.count("- assumed: ") >= 5


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["timeline", "--bucket", "many"], "Write 25MB"),
        (["sweep", "--layers", "3,x"], "for example 30,20"),
        (["sweep", "--from", "4M", "--to", "1M"], "low > 0"),
        (["timeline", "--plot", "a.gif"], ".svg, .png, .pdf"),
        (["timeline", "--plot", "nowhere/a.svg"], "no folder 'nowhere'"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(words, remedy, command):
    done = command("simulate", *words)
    assert done.returncode == 2
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def test_without_matplotlib_the_table_stands_and_the_plot_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from verifier.cli import main as cli\n"
        "sys.argv = ['lockstep', 'simulate', 'timeline', *sys.argv[1:]]; cli.main()"
    )
    table = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert table.returncode == 0
    assert "step 121.6 ms" in table.stdout
    plot = subprocess.run([sys.executable, "-c", code, "--plot", "x.svg"], capture_output=True, text=True)
    assert plot.returncode == 2
    assert "pip install 'lockstep-ddp[bench]'" in plot.stderr


def test_simulating_needs_no_torch():
    code = (
        "import sys\nfrom verifier.lab import growth, plots, simulations\nimport verifier.cli.main\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_stacks():
    assert quantities.parse_stack("2x(1,2),3") == [1, 2, 1, 2, 3]
    assert sum(quantities.parse_stack(quantities.PUBLISHED_STACK)) == pytest.approx(76.4)
    assert quantities.parse_size("4M", 4) == 16e6
    assert quantities.parse_size("25", 4) == 25 * 2**20
    for wrong in ("", "0", "-1", "x3", "3x", "1,,2", "1e99", "9999999x1"):
        with pytest.raises(UsageError):
            quantities.parse_stack(wrong)


@given(st.text(max_size=20))
def test_any_text_is_a_stack_or_refused(text):
    try:
        sizes = quantities.parse_stack(text)
    except UsageError:
        return
    assert all(size > 0 for size in sizes)


def test_the_same_chart_is_the_same_file():
    pytest.importorskip("matplotlib")
    layers = quantities.stack(quantities.PUBLISHED_STACK, 91.68, 4)
    found = simulations.timeline(layers, 16e6, Link(1.4e-3, 2.375e-10), Contention(), "until_full")
    assert plots.svg(found) == plots.svg(found)
    assert plots.svg(found).startswith("<svg")
