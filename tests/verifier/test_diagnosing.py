"""Patterns of wrong gradients and their diagnosed causes, each together with numbers that fit no pattern."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.judge.diagnosis import diagnose
from verifier.judge.evidence import GradientEvidence
from verifier.marker import POISON
from verifier.tags import TagBook


def evidence(observed, expected, **fields):
    given = {"world_size": 4, "num_micro_batches": 1, "poisoned": True, "rank": 1, "local": {}} | fields
    return GradientEvidence(observed=np.asarray(observed), expected=np.asarray(expected), **given)


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1 / np.sqrt(3), "root of 3 times too large"),
        (0.25, "4 times too large"),
        (0.25, "where the largest element was asked for"),
        (1.25, "one rank's part"),
        (1.25, "min(1, max_norm / norm)"),
    ],
)
def test_by_what_norm_a_gradient_was_clipped(factor, said):
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=9) for rank in range(3)}
    right = sum(local.values()) / 3
    found = diagnose(evidence(right * factor, right, world_size=3, local=local, clipped=True))
    assert found.name == "clipped_otherwise"
    assert said in found.explanation


@pytest.mark.parametrize(
    ("places", "divisor", "confidence", "said"),
    [
        ([11], 1, 0.6, "the last of 12 elements is rank 1's own gradient, "),
        ([9, 10, 11], 1, 0.9, "the last 3 of 12 elements are rank 1's own gradient, "),
        ([0, 5, 7], 3, 0.9, "3 of 12 elements are rank 1's own gradient divided by 3, "),
    ],
)
def test_a_part_that_was_not_reduced(places, divisor, confidence, said):
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=12) for rank in range(3)}
    right = sum(local.values()) / 3
    observed = right.copy()
    observed[places] = local[1][places] / divisor
    found = diagnose(evidence(observed, right, world_size=3, local=local))
    assert (found.name, found.confidence) == ("reduced_in_part", confidence)
    assert said in found.explanation
    alike = diagnose(evidence(observed, right, world_size=3, local=local, agreed=True))
    assert alike is None or alike.name == "elements_left_out"  # equal on every rank: one rank's gradient was sent
    observed[4] += 1
    assert diagnose(evidence(observed, right, world_size=3, local=local)) is None
    alone = np.where(np.isin(np.arange(12), places), local[1], 0.0)  # where only zeros are right
    found = diagnose(evidence(alone, alone / 3, world_size=3, local={0: 0 * alone, 1: alone * 0.5, 2: alone * 0.5}))
    assert found is None or found.name != "reduced_in_part"


def test_its_own_gradient_times_any_factor_was_not_reduced():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=12) for rank in range(3)}
    right = sum(local.values()) / 3
    found = diagnose(evidence(local[1] / 2, right, world_size=3, local=local))
    assert (found.name, found.confidence) == ("not_synchronised", 0.9)
    assert "times 0.5, and nothing of any other rank's" in found.explanation
    shared = diagnose(evidence(local[1] / 2 + local[2] / 1000, right, world_size=3, local=local))
    assert shared.name == "unequal_shares"
    tags = {rank: local[0] * (1 + rank) for rank in range(3)}  # multiples of one another show nothing
    found = diagnose(evidence(tags[1] / 2 * 1.1, sum(tags.values()) / 3, world_size=3, local=tags))
    assert found is None or found.name != "not_synchronised"


@pytest.mark.parametrize(
    ("factor", "name"),
    [(float(np.float32(1 / 3)) * 3, "rounded_factor"), (1 + 1e-4, "rescaled")],
)
def test_a_factor_that_was_held_in_float32(factor, name):
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=12) for rank in range(3)}
    both = {rank: gradient / 2 for rank, gradient in local.items()}
    right = sum(local.values()) / 3
    found = diagnose(
        evidence(right * factor, right, world_size=3, local=local, num_micro_batches=2, first=both, last=both)
    )
    assert found.name == name
    single = diagnose(
        evidence((right * factor).astype(np.float32), right.astype(np.float32), world_size=3, local=local)
    )
    assert single is None or single.name != "rounded_factor"


def test_micro_batches_that_count_once_but_for_a_rounding_are_not_miscounted():
    generator = np.random.default_rng(0)
    first, last = ({rank: generator.normal(size=12) for rank in range(2)} for _ in range(2))
    one, other = (sum(of.values()) / 2 for of in (first, last))
    local = {rank: first[rank] + last[rank] for rank in range(2)}
    given = {"world_size": 2, "num_micro_batches": 2, "first": first, "last": last, "local": local}
    twice = diagnose(evidence(one * 1.5 + other, one + other, **given))
    assert twice.name == "unequal_micro_batches"
    nearly = diagnose(evidence(one * (1 + 1e-7) + other, one + other, **given))
    assert nearly is None or nearly.name != "unequal_micro_batches"


def test_a_gradient_of_another_dtype_than_its_parameter():
    right = np.random.default_rng(0).normal(size=12)
    weight, narrow = np.ones(12), right.astype(np.float32)
    found = diagnose(evidence(narrow, right, weight=weight))
    assert (found.name, found.confidence) == ("another_dtype", 0.9)
    assert "the gradient is float32, its parameter float64" in found.explanation
    for observed, held in ((narrow, weight.astype(np.float32)), (right + 1e-9, weight), (narrow * 1.01, weight)):
        found = diagnose(evidence(observed, right, weight=held))
        assert found is None or found.name != "another_dtype"


def test_a_gradient_that_was_cleared():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=12) for rank in range(3)}
    right, zeros = sum(local.values()) / 3, np.zeros(12)
    found = diagnose(evidence(zeros, right, world_size=3, local=local))
    assert (found.name, found.confidence) == ("gradient_cleared", 0.8)
    assert "0 on rank 1, and not so on all ranks" in found.explanation
    assert "0 on every rank:" in diagnose(evidence(zeros, right, world_size=3, local=local, agreed=True)).explanation
    assert diagnose(evidence(zeros, right, world_size=3)) is None  # the ranks' own gradients are unknown
    assert diagnose(evidence(zeros, right, world_size=3, local={0: local[0], 1: local[1]})) is None  # one rank had none
    assert diagnose(evidence(np.where(np.arange(12) == 5, 1.0, 0.0), right, world_size=3, local=local)) is None
    without = local | {2: zeros}  # rank 2's own gradient may have been sent
    assert diagnose(evidence(zeros, sum(without.values()) / 3, world_size=3, local=without)) is None


def test_micro_batches_that_do_not_count_alike():
    generator = np.random.default_rng(0)
    first, last = ({rank: generator.normal(size=12) for rank in range(2)} for _ in range(2))
    parts = [sum(of.values()) / 2 for of in (first, last)]
    known = {"world_size": 2, "num_micro_batches": 2, "first": first, "last": last}
    found = diagnose(evidence(2 * parts[0] + parts[1], sum(parts), **known))
    assert found.name == "unequal_micro_batches"
    assert "counts 2 times in it, and the last 1 times" in found.explanation
    assert diagnose(evidence(2 * parts[0] + parts[1] + np.arange(12), sum(parts), **known)) is None


def test_signs_and_small_whole_numbers():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=40) for rank in range(3)}
    right = sum(local.values()) / 3
    signs = sum(np.sign(gradient) for gradient in local.values()) / 3
    eight_bits = sum(np.round(gradient * 30) for gradient in local.values()) / 90
    for observed in (signs * 0.7, signs.astype(np.float32), eight_bits, eight_bits.astype(np.float32)):
        found = diagnose(evidence(observed, right, world_size=3, local=local))
        assert (found.name, found.confidence) == ("quantised", 0.8)
    assert "a whole multiple of 0.2333, 3 times that at most" in diagnose(evidence(signs * 0.7, right)).explanation
    by_rank = sum(np.sign(gradient) * np.abs(gradient).mean() for gradient in local.values()) / 3
    found = diagnose(evidence(np.tile(by_rank, 2), np.append(right, right * 1.25), world_size=3))
    assert "have no more than 4 sizes but zero, and the right gradient's have 80" in found.explanation
    for observed in (right * 1.5 + signs / 1e3, signs[:15], np.ones(40)):
        assert diagnose(evidence(observed, right[: len(observed)], world_size=3)) is None
    whole = np.round(right * 8)  # if the right gradient's values are multiples, too, it shows nothing
    assert diagnose(evidence(whole + np.arange(40) % 2, whole)) is None


def test_wrong_numbers_of_exact_arithmetic_are_no_quantised_ones():
    generator = np.random.default_rng(0)
    right = generator.integers(-200, 200, size=40) / 64
    wrong = generator.integers(-80, 80, size=40) / 16
    assert diagnose(evidence(wrong, right, world_size=3)) is None
    assert diagnose(evidence(wrong, right + generator.normal(size=40), world_size=3)).name == "quantised"


def test_thin_factors_of_a_matrix():
    generator = np.random.default_rng(0)
    right = generator.normal(size=(6, 2, 4))
    left, sizes, over = np.linalg.svd(right.reshape(6, 8), full_matrices=False)
    first = (sizes[0] * np.outer(left[:, 0], over[0])).reshape(right.shape)
    for observed in (first, first.astype(np.float32)):
        found = diagnose(evidence(observed, right))
        assert found.name == "low_rank"
        assert "as a matrix of 6 x 8 it has rank 1, and the right one 6" in found.explanation
    assert diagnose(evidence(first + 1e-2 * generator.normal(size=right.shape), right)) is None
    assert diagnose(evidence(first[:3], right[:3])) is None  # too small to be of a high rank
    assert diagnose(evidence(np.tile(right.sum(axis=0), (6, 1, 1)), right)) is None  # one row repeated
    large = generator.normal(size=(50, 300))
    thin = (large[:, :2] @ large[:2, :]).astype(np.float32)
    assert "it has rank 2, and the right one 32 or more" in diagnose(evidence(thin, large)).explanation
    thin[40, 250] += 1
    assert diagnose(evidence(thin, large)) is None


def test_elements_of_some_ranks_only():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=12) for rank in range(3)}
    right = sum(local.values()) / 3
    sent = {rank: np.where(np.arange(12) % 3 == rank, 0.0, gradient) for rank, gradient in local.items()}

    def cause(observed, **fields):
        found = diagnose(evidence(observed, right, **{"world_size": 3, "local": local, "agreed": True, **fields}))
        return found and found.name

    assert cause(sum(sent.values()) / 3) == "elements_left_out"
    assert cause(sum(sent.values()) / 3, agreed=False) is None
    assert cause((local[0] + local[2]) / 3) == "some_ranks_only"
    assert cause(local[2] / 3) == "some_ranks_only"
    assert cause(right + 0.1) is None


def test_a_parameter_in_place_of_its_gradient():
    right, weight = np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.0, -4.0])
    for factor in (1, 4):  # averaged, or summed over four ranks
        assert diagnose(evidence(weight * factor, right, weight=weight)).name == "gradient_is_the_parameter"
    assert diagnose(evidence(weight * 3, right, weight=weight)) is None


def test_weights_that_were_added_to_a_gradient():
    right, weight = np.arange(12.0) % 5 - 2, np.array([1.0, -2.0, 0.5] * 4)
    for expected in (right, right * 0):  # a gradient of zeros is the weights then, and they were added all the same
        for factor in (1, 0.25):  # what the buffer still held; a weight decay
            assert diagnose(evidence(expected + factor * weight, expected, weight=weight)).name == "weights_added"
    assert diagnose(evidence(right + weight[::-1], right, weight=weight)) is None


def test_half_of_a_complex_gradient():
    right, mine = np.array([1 + 2j, 3 - 1j]), np.array([5j, -7j])
    found = diagnose(evidence(right.real + mine, right))
    assert found.name == "imaginary_part_lost"
    assert diagnose(evidence(right + mine.imag, right)) is None
    rounded = right.real * (1 + 2.0**-8) + 0j
    assert diagnose(evidence(rounded, right)).name == "imaginary_part_lost", "and the rest went through bfloat16"
    assert diagnose(evidence(rounded + mine, right)) is None


def test_right_numbers_in_wrong_places():
    right = np.random.default_rng(0).normal(size=(3, 4))

    def cause(observed, expected=right, **fields):
        found = diagnose(evidence(observed, expected, **fields))
        return found and found.name

    assert cause(right.T.reshape(3, 4)) == "misplaced_elements"
    assert cause(right[::-1]) == "misplaced_elements"
    assert cause(right[::-1] + 1e-3) is None
    assert cause(np.sign(right)[::-1], np.sign(right)) is None, "of two values any order is soon found"
    assert cause(right[:1, ::-1], right[:1]) is None, "four may fit by chance"
    assert cause(right * 2, elsewhere="it says so") == "misplaced_elements"


def test_codes_say_whose_mean_it_is():
    book = TagBook([("weight", 6), ("bias", 3)], 3)
    mixed = np.concatenate([book.mean("bias"), book.mean("weight")[3:]])
    assert [part.describe() for part in book.decode_mean(mixed)] == ["bias[0:3]", "weight[3:6]"]
    assert book.decode_mean(book.gradient("bias", 0)) is None, "its own, and no mean"


def test_ranks_that_do_not_count_alike():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=9) for rank in range(3)}
    right = sum(local.values()) / 3

    def cause(*shares, local=local, right=right, **fields):
        observed = sum(share * gradient for share, gradient in zip(shares, local.values(), strict=True))
        found = diagnose(evidence(observed, right, **{"world_size": 3, "local": local, **fields}))
        return found and found.name

    assert cause(0.25, 0.25, 0.5) == "unequal_shares"
    assert cause(0.1, 0.3, -0.2) == "unequal_shares"
    assert cause(0.4, 0.4, 0.4) == "rescaled"
    assert cause(0.4, 0.4, 0.4, clipped=True) == "clipped_otherwise"
    assert cause(0.25, 0.25, 0.5, clipped=True) is None
    assert cause(0.25, 0.3, -0.1, clipped=True) is None
    assert cause(0.25, 0.3, 0.1, clipped=True) == "clipped_before_reduction"
    alike = {rank: local[0] * factor for rank, factor in enumerate((1, 2, 5))}
    assert cause(0.25, 0.25, 0.5, local=alike, right=local[0] * 8 / 3) is None, "other shares would do as well"
    short = {rank: gradient[:5] for rank, gradient in local.items()}
    assert cause(0.25, 0.25, 0.5, local=short, right=right[:5]) is None, "any five numbers could be three shares' sum"


def test_causes_in_time():
    right, before = np.array([1.0, -2.0, 3.0]), np.array([7.0, 0.5, -1.0])
    first, second = {0: right + 5, 1: right - 7}, {0: right * 3, 1: right / 5}
    shares = {"first": first, "local": {r: first[r] + second[r] for r in (0, 1)}, "num_micro_batches": 2}

    def cause(observed, **fields):
        found = diagnose(
            evidence(observed, right, **{"world_size": 2, "rank": 0, "previous": before, **shares, **fields})
        )
        return found and found.name

    mean = (first[0] + first[1]) / 2
    assert cause(mean + second[0]) == "first_micro_batch_only"
    assert cause(mean) == "first_micro_batch_only"
    assert cause(mean + second[1]) is None, "that is another rank's"
    assert cause(mean, num_micro_batches=1) is None
    assert cause((second[0] + second[1]) / 2 + first[0], last=second) == "last_micro_batch_only"
    assert cause((second[0] + second[1]) / 2, last=second) == "last_micro_batch_only"
    assert cause((second[0] + second[1]) / 2 + first[1], last=second) is None, "that is another rank's"
    assert cause(right + before) == "not_cleared"
    assert cause(right + before / 2) == "not_cleared"
    assert cause(right + before / 3) is None, "no number of ranks makes a third of two"
    assert cause(before) == "stale_gradient"
    assert cause(right * 1.5, previous=right) == "rescaled", "which of them it is cannot be told apart: the simpler one"


def test_in_a_later_step_different_gradients_with_the_right_mean_were_not_reduced():
    right = np.array([1.0, -2.0, 3.0])
    held = {rank: right + offset for rank, offset in enumerate((5, -7, 1, 1))}

    def cause(**fields):
        found = diagnose(evidence(held[1], right, **{"held": held, **fields}))
        return found and found.name

    assert cause() == "not_synchronised"
    assert cause(held={**held, 3: right + 2}) is None, "their mean is another"
    assert cause(held={0: right + 7, 1: right - 7}) is None, "what the other ranks hold is not known"
    assert cause(agreed=True) is None
    assert cause(local={0: right - 1, 1: right - 3}) is None, "where own gradients are known, they tell"


def test_causes():
    right = np.array([1.0, -2.0, 3.0])
    locals_ = {0: right + 5, 1: right - 7}

    def cause(observed, **fields):
        found = diagnose(evidence(observed, right, **fields))
        return found and found.name

    assert cause(right * 4) == "missing_average"
    assert cause(right / 4) == "averaged_twice"
    assert cause(right * 2, num_micro_batches=2) == "missing_accumulation_average"
    for ranks, sure in ((3, 0.9), (4, 0.6)):  # four ranks may be two on each of two nodes
        assert diagnose(evidence(right * 2, right, num_micro_batches=2, world_size=ranks)).confidence == sure
    assert cause(locals_[1], local=locals_) == "not_synchronised"
    assert cause(locals_[1], local=locals_, reduced_to=0) == "reduced_to_one_rank"
    assert cause(locals_[0], local=locals_) == "one_ranks_gradient"
    assert cause(locals_[1], local=locals_, agreed=True) == "one_ranks_gradient", "it is on every rank"
    assert cause(right * 4, written_in_flight=True) == "written_in_flight"
    assert cause(right + 1) is None  # no name is better than a wrong one
    assert cause(right * [4, 4, 1]) is None
    assert cause(right * 2, previous=right * 2) == "stale_gradient"
    assert cause(right + 1e-12, previous=right) != "stale_gradient", "tags are the same in every step"
    assert cause([np.nan, 1, 1], poisoned=False) == "not_finite"
    on_gpu = diagnose(evidence([np.nan, 1, 1], right, on_gpu=True))
    assert (on_gpu.name, on_gpu.confidence) == ("not_finite", 0.6), "a GPU's arithmetic loses the marker"
    poisoned = right.copy()
    poisoned.view(POISON["float64"][0])[1] = POISON["float64"][1]
    found = diagnose(evidence(poisoned, right))
    assert (found.name, found.confidence) == ("read_before_wait", 1.0)
    assert diagnose(evidence(right * 4, right, num_micro_batches=4)).confidence < 0.9  # K = W: could be either


def test_a_gradient_that_is_added_to_after_it_was_reduced_is_told_as_such():
    generator = np.random.default_rng(0)
    local = {rank: generator.normal(size=40) for rank in range(3)}
    mean = sum(local.values()) / 3
    found = diagnose(evidence(mean + local[1], mean, world_size=3, local=local))
    assert found.name == "unequal_shares"
    assert found.explanation.endswith("the mean, and rank 1's own once more, added after the reduction")
    assert "once more" not in diagnose(evidence(mean + local[2], mean, world_size=3, local=local)).explanation
