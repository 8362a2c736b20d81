"""Situations that ``standard`` includes only for strategies that they concern, as shown by the strategy's text."""

from __future__ import annotations

import pytest

from verifier.naming import parse_strategy
from verifier.request import Builtin, Request, Source
from verifier.situation import PROFILES, plan
from verifier.texts import has_to_do_with_optimizers, says_float16, says_norm_type


@pytest.mark.parametrize(
    ("situation", "concerned", "not_concerned"),
    [
        ("own_interpreters", "set(model)", "sorted(model)"),
        ("clipping_largest", "Clipping(model, norm_type=2.0)", "Clipping(model)"),
        ("subgroup", "Replica(model, process_group=None)", "Replica(model)"),
        ("subgroup_sparse", "Replica(model, process_group=None)", "Replica(model)"),
        ("subgroup_later", "Replica(model, process_group=None)", "Replica(model)"),
        ("joint_backward", "A.queue_callback(model)", "A.callback(model)"),
        ("joint_backward", "A(model)\ndef f(self): type(self).busy = True", "A(model)\ndef f(self): self.busy = True"),
        ("joint_backward", "A(model)\nglobal works", "A(model)"),
        ("crossings_sparse", "A(model) if p.grad.is_sparse else model", "A(model) if p.grad is None else model"),
        ("crossings_complex", "torch.view_as_real(model)", "torch.view(model)"),
        ("clipping_strided", "A(model)\ndef clip_grad_norm_(self, m): pass", "A(model, clip_grad_norm_)"),
        ("halves_clipping", "A(model)\ndef clip_grad_norm_(self, m): pass", "A(model, clip_grad_norm_)"),
        ("rolled_back_accumulated", "A(model, accumulation_steps=2)", "model.register_post_accumulate_grad_hook(A)"),
        ("rolled_back_accumulated", "A(model)\ndef backward(self, loss): pass", "A(model).backward()"),
        ("nodes_buffers", "Replica(model, os.environ['LOCAL_RANK'])", "Replica(model, os.environ['RANK'])"),
        ("complex_accumulated", "torch.view_as_real(model)", "torch.view(model)"),
        ("accumulated_adamw", "A(model)\nclass A(torch.optim.SGD): pass", "A(model)\nclass A(nn.Module): pass"),
        ("imported_first", "A(model)\ndef A(m, size=dist.get_world_size()): pass", "A(model, dist.get_world_size())"),
        ("infinite_loss", "A(model)\ndef backward(self): pass", "A(model).all_reduce()"),
        ("loss_no_number", "A(model, torch.isfinite)", "A(model, torch.sum)"),
        ("overflow_accumulated", "A(model, torch.isfinite)", "A(model, torch.sum)"),
        ("restart_twice", "A(model)\ndef state_dict(self): pass", "A(model).state_dict()"),
        ("restart_strided", "A(model)\ndef load_state_dict(self, s): pass", "A(model).load_state_dict()"),
        ("clipping_unused", "A(model)\ndef clip_grad_norm_(self, m): pass", "A(model, clip_grad_norm_)"),
        ("dropped_micro_batch", "A(model)\ndef no_sync(self): pass", "A(model)\ndef sync(self): pass"),
        ("surges", "A(model, z_score=3.0)", "A(model, z=3.0)"),
        ("surges", "A(model).step() if not skip else None", "A(model).step()"),
        ("later_start", "Lookahead(model)", "model"),
        ("later_start", "A(model) if step % self.sync_steps == 0", "A(model) if rank % 2 == 0 else 'each step'"),
        ("clipping_float32", "A(model)\ndef clip_grad_norm_(self, m): pass", "A(model, clip_grad_norm_)"),
        ("unused_later", "A(model) if self.steps <= 10 else model", "A(model) if rank <= 10 else model"),
        ("large_start", "A(model) if model.numel() > 8 else model", "A(model.numel())"),
        ("halves_strided", "model.to(p.dtype)", "model"),
        ("subgroup_strided", "Replica(model, process_group=None)", "Replica(model)"),
        ("nodes_sparse", "Replica(model, os.environ['LOCAL_RANK'])", "Replica(model, os.environ['RANK'])"),
        ("groups_adamw", "A(model)\ndef wrap_optimizer(optimizer): pass", "A(model)"),
        ("resumed_schedule", "A(model)\nimport pydantic", "A(model)\nimport torch, numpy, math"),
        ("large_gradients", "model.to(torch.float16)", "model.to(torch.bfloat16)"),
    ],
)
def test_standard_asks_where_a_text_shows_it(tmp_path, situation, concerned, not_concerned):
    path = tmp_path / "mine.py"
    for text, asked in ((concerned, True), (not_concerned, False)):
        path.write_text(f"def wrap(model): return {text}")
        planned = {
            profile: {s.situation for s in plan(Request(strategy=parse_strategy(str(path)), profile=profile))}
            for profile in PROFILES
        }
        assert situation not in planned["quick"]
        assert (situation in planned["standard"]) is asked
        assert situation in planned["thorough"]


@pytest.mark.parametrize("text", ["x.half()", "torch.half", "lossy='float16'", "FP16 = True", "fp16_compress_hook"])
def test_a_text_with_a_word_for_float16(text):
    assert says_float16(Source(files={"helper.py": "", "mine.py": text}, entrypoint="mine:wrap"))


@pytest.mark.parametrize("text", ["x.bfloat16()", "halfway = 1", "the_half_of_it", "torch.float32"])
def test_a_text_without(text):
    assert not says_float16(Source(files={"mine.py": text}, entrypoint="mine:wrap"))


def test_of_a_huge_file_the_first_part_is_read(tmp_path):
    path = tmp_path / "mine.py"
    for place, is_read in ((2**20 - 8, True), (2**20, False)):
        path.write_text("#" * place + "fp16\ndef wrap(model): return model")
        assert says_float16(parse_strategy(str(path))) is is_read


def test_a_strategy_without_a_text_at_hand():
    assert not says_float16(Builtin(name="bucketed"))


def test_what_a_file_imports_from_beside_it_is_read_with_it(tmp_path):
    (tmp_path / "package").mkdir()
    others = "".join(f"import other{number}\n" for number in range(20))
    texts = {
        "package/__init__.py": "",
        "package/inner.py": "from .deeper import x\nfrom .. import beyond",
        "package/deeper.py": "HALF = 'fp16'",
        "deeper.py": "",
        "broken.py": "def broken(:",
        **{f"other{number}.py": "" for number in range(20)},
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "mine.py").write_text("from package import inner as wrap\nimport broken, mine, torch\n")
    assert says_float16(parse_strategy(str(tmp_path / "mine.py")))
    (tmp_path / "package/deeper.py").write_text("")
    assert not says_float16(parse_strategy(str(tmp_path / "mine.py")))
    (tmp_path / "other3.py").write_text("fp16 = True")
    (tmp_path / "mine.py").write_text(f"{others}def wrap(model): return model")
    assert says_float16(parse_strategy(str(tmp_path / "mine.py"))), "of many files the first are read"


@pytest.mark.parametrize("strategy", ["a_package.ddp:wrap", "mine.py"])
def test_what_is_imported_from_the_path_is_read_with_it(tmp_path, monkeypatch, strategy):
    package, mine = tmp_path / "elsewhere/a_package", tmp_path / "mine.py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "ddp.py").write_text("from a_package.parts import wrap")
    (package / "parts.py").write_text("import torch, no_such_module\nHALF = 'fp16'")
    mine.write_text("from a_package.ddp import wrap")
    ref = parse_strategy(strategy if ":" in strategy else str(mine))
    assert not says_float16(ref)
    monkeypatch.chdir(tmp_path / "elsewhere")  # the first place where ranks look
    assert says_float16(ref)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    assert says_float16(ref)


def test_what_is_installed_is_read_only_if_it_is_the_strategy(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    (site / "a_framework").mkdir(parents=True)
    (site / "a_framework/__init__.py").write_text("from a_framework.ddp import wrap")
    (site / "a_framework/ddp.py").write_text("import another_framework\nHALF = 'fp16'")
    (site / "another_framework.py").write_text("norm_type = 2")
    (tmp_path / "mine.py").write_text("from a_framework import wrap")
    monkeypatch.syspath_prepend(site)
    assert not says_float16(parse_strategy(str(tmp_path / "mine.py")))
    assert says_float16(parse_strategy("a_framework:wrap"))
    assert not says_norm_type(parse_strategy("a_framework:wrap"))


def test_torch_speaks_of_everything_and_is_not_read():
    assert has_to_do_with_optimizers(parse_strategy("torch.nn.parallel:DistributedDataParallel")), "as far as is known"
    assert not has_to_do_with_optimizers(Builtin(name="bucketed"))
    assert has_to_do_with_optimizers(Builtin(name="zero1"))
    assert not says_float16(parse_strategy("torch.nn.parallel:DistributedDataParallel"))
