"""The Yelp job: masking, synthetic data, ranks that decide together, and loading from folders made by the test.

The hub itself is never contacted. Where ``transformers`` and ``datasets`` are installed, the loading code runs on a
small tokenizer, checkpoint and data set that the test writes to disk.
"""

from __future__ import annotations

import functools
import json

import pytest
import torch
import torch.nn.functional as F

from ddp_core import yelp
from ddp_core.models import llama
from ddp_core.training import evaluate, train

TINY = {"hidden_size": 24, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2, "intermediate_size": 40}


class Words:
    """A tokenizer with transformers' interface: a word is a token, and the padding token also ends texts (2)."""

    def __init__(self, side="right"):
        self.side = side

    def __call__(self, texts, *, padding, truncation, max_length):
        rows, masks = [], []
        for text in texts:
            tokens = [*(3 + len(word) for word in text.split()), 2][:max_length]
            fill, mask = [2] * (max_length - len(tokens)), [1] * len(tokens)
            absent = [0] * len(fill)
            rows.append(tokens + fill if self.side == "right" else fill + tokens)
            masks.append(mask + absent if self.side == "right" else absent + mask)
        return {"input_ids": rows, "attention_mask": masks}


def test_padding_is_masked_by_position_not_by_token():
    rows = yelp.tokenise(Words(), ["so good", "a b c d e f"], [4, 0], length=5)
    assert rows.columns["input_ids"].tolist() == [[5, 7, 2, 2, 2], [4, 4, 4, 4, 4]]
    assert rows.columns["labels"].tolist() == [[5, 7, 2, -100, -100], [4, 4, 4, 4, 4]]  # the end of text is learnt
    assert rows.columns["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert (len(rows), int(rows[1]["stars"])) == (2, 0)
    with pytest.raises(ValueError, match="padding_side = 'right'"):
        yelp.tokenise(Words("left"), ["so good"], [4], length=5)


def test_synthetic_reviews_have_the_shape_of_real_ones_and_say_so():
    data = yelp.synthetic_reviews(6, 3, length=20)
    assert "synthetic tokens" in data.origin
    assert (len(data.train), len(data.evaluation)) == (6, 3)
    columns = data.train.columns
    for name in ("input_ids", "attention_mask", "labels"):
        assert (columns[name].shape, columns[name].dtype) == ((6, 20), torch.int64)
    assert ((columns["labels"] == -100) == (columns["attention_mask"] == 0)).all()
    assert 0 <= columns["stars"].min() <= columns["stars"].max() < 5
    again = yelp.synthetic_reviews(6, 3, length=20)
    assert torch.equal(columns["input_ids"], again.train.columns["input_ids"])


def test_both_tasks_are_learnt_and_counted():
    """With a small model of the same kind the loss falls, and it is the mean over the counted tokens."""
    torch.manual_seed(0)
    rows = yelp.synthetic_reviews(8, 1, length=12).train
    rows.columns["input_ids"] %= 31
    rows.columns["labels"][rows.columns["labels"] > 0] %= 31
    batch = {name: column[:] for name, column in rows.columns.items()}
    for num_labels, loss, metric in (
        (None, yelp.next_token_loss, yelp.next_token_accuracy),
        (5, yelp.stars_loss, yelp.stars_accuracy),
    ):
        model = llama(vocab_size=31, num_labels=num_labels, **TINY)
        records = train(model, [batch] * 60, torch.optim.AdamW(model.parameters(), lr=0.01), loss)
        assert records[-1].loss < 0.5 * records[0].loss
        assert records[0].samples == 8

        def forward(module, batch):
            return module(batch["input_ids"], batch["attention_mask"])

        found = evaluate(model, [batch], {"accuracy": metric}, forward=forward)
        assert found["accuracy"] > 0.6
    model = llama(vocab_size=31, **TINY)
    real = batch["labels"][:, 1:] != -100
    assert yelp.num_tokens(batch) == int(real.sum())
    each = F.cross_entropy(model(batch["input_ids"])[:, :-1][real], batch["labels"][:, 1:][real], reduction="sum")
    torch.testing.assert_close(yelp.next_token_loss(model, batch) * yelp.num_tokens(batch), each)


class Both:
    """Two ranks that decide together: this one, and one that says ``other``."""

    def __init__(self, other):
        self.other = other

    def gather_objects(self, item):
        return [item, self.other]


def test_ranks_fall_back_together_or_not_at_all(monkeypatch):
    fetched = yelp.Yelp(*[yelp.synthetic_reviews(1, 1, length=4).train] * 2, "the hub")
    monkeypatch.setattr(yelp, "_fetch_reviews", lambda *_: fetched)
    assert yelp.reviews(comm=Both(None)) is fetched
    assert yelp.reviews().origin == "the hub"
    assert yelp.reviews(4, 2, length=9, comm=Both("OSError: no route")).origin.endswith("OSError: no route")

    def unreachable(*_):
        raise ConnectionError("no network here\nand a page more")

    monkeypatch.setattr(yelp, "_fetch_reviews", unreachable)
    monkeypatch.setattr(yelp, "_fetch_weights", unreachable)
    data = yelp.reviews(4, 2, length=9, comm=Both(None))
    assert data.origin.endswith("ConnectionError: no network here")
    assert data.train.columns["input_ids"].shape == (4, 9)
    built, origin = yelp.model(device="meta")
    assert len(list(built.parameters())) == 291
    assert origin.startswith("random weights, because HuggingFaceTB/SmolLM2-360M could not be fetched")

    def mistaken(*_):
        raise KeyError("text")

    monkeypatch.setattr(yelp, "_fetch_reviews", mistaken)  # an error in the code is not a missing network
    with pytest.raises(KeyError):
        yelp.reviews()


@pytest.mark.parametrize("name", ["datasets", "transformers"])
def test_without_its_libraries_the_error_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'lockstep-ddp\[yelp\]'"):
        yelp._require(name)


def test_the_loading_code_on_real_libraries(tmp_path, monkeypatch):
    """The real libraries read a tokenizer, a checkpoint and a data set from folders, without the hub."""
    pytest.importorskip("datasets", reason="needs lockstep-ddp[yelp]")
    transformers = pytest.importorskip("transformers", reason="needs lockstep-ddp[yelp]")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0, "<end>": 1, "good": 2, "bad": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    checkpoint, data = tmp_path / "model", tmp_path / "data"
    data.mkdir()
    for split in ("train", "test"):
        rows = [{"text": "good good bad", "label": 4}, {"text": "bad", "label": 0}, {"text": "what", "label": 2}]
        (data / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(checkpoint)
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=40, rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config)
    theirs.save_pretrained(checkpoint)
    monkeypatch.setattr(yelp, "MODEL", str(checkpoint))
    monkeypatch.setattr(yelp, "DATASET", str(data))
    monkeypatch.setattr(yelp, "smollm2_360m", functools.partial(llama, vocab_size=31, **TINY))

    found = yelp.reviews(2, 3, length=5)
    assert found.origin == str(data)
    assert (len(found.train), len(found.evaluation)) == (2, 3)
    of_stars = {int(row["stars"]): row for row in found.evaluation}
    assert of_stars[4]["input_ids"].tolist() == [2, 2, 3, 1, 1]
    assert of_stars[4]["labels"].tolist() == [2, 2, 3, -100, -100]

    ours, origin = yelp.model(num_labels=None)
    assert origin == str(checkpoint)
    tokens = torch.randint(0, 31, (2, 9))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)
    classifier, _ = yelp.model(num_labels=5)
    assert torch.equal(classifier.get_parameter("model.norm.weight"), theirs.get_parameter("model.norm.weight"))
