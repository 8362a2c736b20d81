"""The rules by which findings become verdicts, so that nothing passes by accident."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from verifier.check import Check, Findings
from verifier.checks.ls101_weight_lockstep import weight_lockstep
from verifier.checks.ls102_buffer_lockstep import buffer_lockstep
from verifier.checks.ls103_optimizer_state_lockstep import optimizer_state_lockstep
from verifier.checks.ls202_update_equivalence import update_equivalence
from verifier.checks.ls503_state_dict_names import _prefix
from verifier.checks.ls801_rng_streams import rng_streams
from verifier.judge.autocasting import unreported
from verifier.judge.comparison import bound_float64, compare, odd_ones_out
from verifier.judge.judging import run_check
from verifier.judge.overwritten import overwritten
from verifier.lines import AUTOCAST, NOT_RESCHEDULED
from verifier.marker import POISON, holds_poison
from verifier.nodes import MEANT
from verifier.recording import RankRecording, Recording, Tensor
from verifier.request import Builtin
from verifier.scenario import Scenario
from verifier.verdict import Failure, combine


def recording(complete=True, **fields):
    plain = {"name": "s", "situation": "s", "workload": "exact", "strategy": Builtin(name="naive"), "world_size": 1}
    scenario = Scenario(**{**plain, **fields})
    outcome = {"status": "completed"} if complete else None
    return Recording(scenario, [RankRecording(0, outcome=outcome)], None, {})


def conclude(findings, made=None, planned=()):
    made = recording() if made is None else made
    result = run_check(Check("LS999", "trial", lambda _: findings, ""), [made], planned)
    return result.verdict, result.claimed


FAILURE = Failure(scenario="s", explanation="wrong")


def test_verdicts():
    assert conclude(Findings(comparisons=3)) == ("pass", True)
    assert conclude(Findings(comparisons=3, failures=[FAILURE])) == ("fail", True)
    assert conclude(Findings()) == ("unknown", True)
    assert conclude(Findings(comparisons=3, blocked="half is missing")) == ("unknown", True)
    assert conclude(Findings(comparisons=3), recording(complete=False)) == ("unknown", True)
    assert conclude(Findings(comparisons=3, failures=[FAILURE]), recording(complete=False)) == ("fail", True)
    assert conclude(Findings(not_claimed="not said")) == ("unknown", False)


def test_a_check_that_raises_is_unknown():
    def broken(_):
        raise ZeroDivisionError("oops")

    result = run_check(Check("LS999", "trial", broken, ""), [recording()])
    assert result.verdict == "unknown"
    assert "our fault" in result.why
    assert "oops" in result.why


def test_a_scenario_that_was_not_run_is_no_pass():
    never = recording(seed=1).scenario.model_copy(update={"name": "never"})
    assert conclude(Findings(comparisons=3), planned=[recording().scenario, never]) == ("unknown", True)
    elsewhere = never.model_copy(update={"judged_by": ("LS001",)})
    assert conclude(Findings(comparisons=3), planned=[recording().scenario, elsewhere]) == ("pass", True)


def test_what_is_compared_aside_is_no_pass_where_the_claim_is_not_claimed():
    findings = {"s": Findings(comparisons=3, aside=True), "t": Findings(not_claimed="a rule of its own")}
    trial = Check("LS999", "trial", lambda one: findings[one.scenario.name], "")
    made = [recording(), replace(recording(), scenario=recording().scenario.model_copy(update={"name": "t"}))]
    found = run_check(trial, made)
    assert (found.verdict, found.claimed, found.why) == ("unknown", False, "a rule of its own")
    assert run_check(trial, made[:1]).verdict == "pass"
    findings["s"].failures = [FAILURE]
    assert run_check(trial, made).verdict == "fail"
    findings["s"] = Findings(blocked="half is missing", aside=True)
    assert (run_check(trial, made).verdict, run_check(trial, made).claimed) == ("unknown", True)


def test_nodes_are_named_only_if_it_is_right_elsewhere():
    nodes = replace(recording(), scenario=recording().scenario.model_copy(update={"name": "n", "several_nodes": True}))
    findings = {"n": Findings(comparisons=3, failures=[FAILURE.model_copy(update={"scenario": "n"})]), "s": Findings()}
    trial = Check("LS999", "trial", lambda one: findings[one.scenario.name], "")
    assert run_check(trial, [nodes, recording()]).failures[0].hint is None
    findings["s"] = Findings(comparisons=3)
    assert run_check(trial, [nodes, recording()]).failures[0].hint == MEANT


def test_combine():
    for verdicts in itertools.product(["pass", "fail", "unknown"], repeat=3):
        expected = "fail" if "fail" in verdicts else "unknown" if "unknown" in verdicts else "pass"
        assert combine(verdicts) == expected
    assert combine([]) == "unknown"


def test_compare_has_no_hidden_tolerance():
    one = np.array([1.0, 2.0], np.float32)
    assert compare(one, one, 0.0).equal
    off = compare(np.nextafter(one, np.float32(9)), one, 0.0)
    assert not off.equal
    assert off.margin == float("inf")
    assert not compare(np.array([np.nan, 2.0], np.float32), one, 1e9).equal
    assert not compare(np.array([np.inf, 2.0], np.float32), one, 1e9).equal
    assert compare(np.array([np.nan]), np.array([np.nan]), 0.0).equal
    assert compare(np.empty(0), np.empty(0), 0.0).equal
    assert compare(np.array([1 + 1e-12]), np.array([1.0]), bound_float64(np.array([1.0]))).equal
    assert not compare(np.array([1 + 1e-9]), np.array([1.0]), bound_float64(np.array([1.0]))).equal
    assert not compare(np.array([1e-9, 0.0]), np.zeros(2), bound_float64(np.zeros(2))).equal


@pytest.mark.parametrize(
    ("digests", "odd", "majority"),
    [
        ("aaaa", [], True),
        ("aaba", [2], True),
        ("baaa", [0], True),
        ("aabb", [2, 3], False),
        ("bbaa", [2, 3], False),
        ("ab", [1], False),
        ("abc", [1, 2], False),
    ],
)
def test_odd_ranks_are_named_by_majority_and_ties_say_so(digests, odd, majority):
    assert odd_ones_out(dict(enumerate(digests))) == (odd, majority)


def test_the_observer_and_the_judge_agree_on_the_poison():
    import torch

    from verifier.observe import observer, poison
    from verifier.reading import _contents

    assert POISON["float32"][1] == observer.POISON_FLOAT32
    assert POISON["float64"][1] == observer.POISON_FLOAT64
    for name in (*POISON, "complex64", "complex128"):
        tensor = torch.zeros(3, dtype=getattr(torch, name))
        assert poison.spoil(tensor)
        raw = np.frombuffer(bytes(tensor.untyped_storage()), np.uint8)
        assert holds_poison(_contents(raw, [0, raw.size], name, [3])), name
    for name in ("float32", "float64"):
        kind, bits = POISON[name]
        value = np.array([bits], kind).view(name)
        assert np.isnan(value).all()
        assert ((value / 3).view(kind) == bits).all()  # arithmetic keeps the NaN's payload
    for kind in (np.float16, np.float32, np.complex64):
        assert not holds_poison(np.array([np.nan, 1.0], kind))


def test_weights_that_have_parted_may_meet_again():
    """Diverged weights may become equal again by coincidence; their different momentum is LS101's finding already."""
    made = recording(world_size=2, num_steps=2)
    made.ranks.append(RankRecording(1, outcome={"status": "completed"}))

    def hold(what, step, name, *digests):
        for rank, digest in zip(made.ranks, digests, strict=True):
            rank.tensors[what, step, name] = Tensor(what, step, name, "float32", (1,), digest, None)

    hold("weight", 0, "w", "a", "a")
    hold("weight", 1, "w", "c", "c")
    hold("optimizer_state", 1, "w/momentum_buffer", "m", "n")
    assert optimizer_state_lockstep.judge(made).failures
    hold("weight", 0, "w", "a", "b")
    found = optimizer_state_lockstep.judge(made)
    assert not found.failures
    assert "LS101" in found.blocked


def test_random_numbers_that_only_some_ranks_drew_are_no_pass():
    made = recording(world_size=2)
    made.ranks.append(RankRecording(1, outcome={"status": "completed"}))
    for rank in made.ranks:
        rank.notes.update(rng_forward={"torch": f"begun {rank.rank}"}, rng_end={"torch": f"ended {rank.rank}"})
    assert rng_streams.judge(made).comparisons == 2  # at both moments, the second rank's with the first's
    assert run_check(rng_streams, [made]).verdict == "pass"
    del made.ranks[1].notes["rng_forward"]
    assert run_check(rng_streams, [made]).verdict == "unknown"


def test_a_model_that_does_not_say_whether_it_ran_under_autocast_is_no_pass():
    made = recording(world_size=2)
    made.ranks.append(RankRecording(1, outcome={"status": "completed"}))
    said = Tensor("buffer", 0, AUTOCAST, "float64", (), "digest", None)
    for rank in made.ranks:
        assert unreported(made) == f"rank {rank.rank}'s model did not say whether it ran under autocast"
        rank.tensors["buffer", 0, AUTOCAST] = said
    assert unreported(made) is None


def test_a_forward_that_does_not_say_what_it_left_in_a_buffer_is_no_pass():
    made = recording(world_size=2, num_steps=2, workload="buffers")
    made.ranks.append(RankRecording(1, outcome={"status": "completed"}))
    for rank, what, step in itertools.product(made.ranks, ("buffer", "left_buffer"), range(2)):
        rank.tensors[what, step, "norm.running_mean"] = Tensor(
            what, step, "norm.running_mean", "float32", (1,), "digest", np.ones(1, np.float32)
        )
    assert run_check(buffer_lockstep, [made]).verdict == "pass"
    del made.ranks[1].tensors["left_buffer", 0, "norm.running_mean"]
    assert buffer_lockstep.judge(made).blocked == "not every rank's forward said what it left in norm.running_mean"
    assert run_check(buffer_lockstep, [made]).verdict == "unknown"


def test_an_optimizer_that_hides_the_options_that_were_to_change_is_not_said_to_follow_them():
    held = {
        (what, step, "w"): Tensor(what, step, "w", "float64", (1,), "digest", np.ones(1))
        for what, step in (("weight", -1), ("gradient", 0), ("weight", 0))
    }
    made = recording(num_steps=1)
    made = replace(made, reference=RankRecording(0, outcome={"status": "completed"}, tensors=dict(held)))
    made.ranks[0].tensors.update(held)
    made.ranks[0].notes["parameters"] = [{"name": "w", "shape": [1], "numel": 1, "dtype": "float64"}]
    assert update_equivalence.judge(made).not_claimed is None
    made.ranks[0].notes[NOT_RESCHEDULED] = 0  # the step after which they were to change
    found = update_equivalence.judge(made)
    assert found.comparisons
    assert "does not show the options that are to change" in found.not_claimed


def test_weights_that_hold_the_marker_of_a_tensor_in_flight_are_told_as_such():
    made = recording(world_size=2)
    made.ranks.append(RankRecording(1, outcome={"status": "completed"}))
    marker = np.array([POISON["float32"][1]], np.uint32).view(np.float32)
    for rank, values in zip(made.ranks, (np.ones(1, np.float32), marker), strict=True):
        rank.tensors["weight", 0, "w"] = Tensor("weight", 0, "w", "float32", (1,), f"digest {rank.rank}", values)
    made.ranks[0].notes["parameters"] = [{"name": "w"}]
    (failure,) = weight_lockstep.judge(made).failures
    assert "marker that fills a tensor while its collective is in flight" in failure.explanation


ONE_TOO_SMALL = """
import torch, torch.distributed as dist
def average_gradients(model):
    for number, p in enumerate(model.parameters()):
        p.grad /= dist.get_world_size()
        dist.all_reduce(p.grad)
        p.grad *= 1 if number else 0.9
"""


def test_what_is_wrong_without_clipping_is_not_explained_by_clipping(lockstep, tmp_path, only):
    path = tmp_path / "mine.py"
    path.write_text(ONE_TOO_SMALL)

    def told(*situations):
        only(*situations)
        report = lockstep.verify(f"{path}:average_gradients", world_size=2, profile="standard")
        return {failure.cause for check in report.checks if check.code == "LS201" for failure in check.failures}

    assert "clipped_otherwise" in told("clipping")
    assert told("clipping", "realistic") == {"rescaled", None}


def test_a_rank_that_shows_no_weight_is_no_pass_unless_it_holds_a_part():
    def made(**contract):
        found = recording(world_size=3)
        found.ranks.extend(RankRecording(rank, outcome={"status": "completed"}) for rank in (1, 2))
        for rank in found.ranks:
            rank.notes.update(contract=contract, parameters=[{"name": "w", "dtype": "float32"}])
        for rank in found.ranks[:2]:
            rank.tensors["weight", 0, "w"] = Tensor("weight", 0, "w", "float32", (1,), "digest", contents=np.zeros(1))
        return weight_lockstep.judge(found)

    assert made().blocked == "rank 2 shows no w after step 0"
    assert made(sharded=True).blocked is None


def test_an_infinite_element_does_not_make_all_others_right():
    expected = np.array([np.inf, 1.0])
    assert compare(expected, expected, bound_float64(expected)).equal
    assert not compare(np.array([np.inf, 77.0]), expected, bound_float64(expected)).equal


def test_the_prefix_is_the_one_that_fits_most_names():
    bare = ["scale", "layer.scale", "layer.weight"]
    for prefix in ("", "module.", "layer."):
        assert _prefix(sorted(prefix + name for name in bare), bare) == prefix
    assert _prefix(["flat"], bare) == ""


@pytest.mark.parametrize(
    ("came_to", "moved", "is_so"),
    [(0.01, 0.01, True), (3.01, 0.01, False), (0.01, 0.5, False), (1.5, 0.01, False)],
    ids=["near the fresh", "near the loaded", "by steps as long", "half-way"],
)
def test_what_was_loaded_is_overwritten_if_a_step_leads_near_what_was_built(came_to, moved, is_so):
    made = recording(num_steps=3, resume_after=1)
    at = {("fresh_weight", 1): 0.0, ("weight", 0): 3 - moved, ("weight", 1): 3.0, ("weight", 2): came_to}
    for (what, step), value in at.items():
        values = np.full(8, value)
        made.ranks[0].tensors[what, step, "w"] = Tensor(what, step, "w", "float64", (8,), "digest", values)
    made.ranks[0].notes["parameters"] = [{"name": "w"}]
    assert overwritten(made, 1) == ["w"] * is_so
    del made.ranks[0].tensors["fresh_weight", 1, "w"]
    assert not overwritten(made, 1)
