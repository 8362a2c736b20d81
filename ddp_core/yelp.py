"""SmolLM2-360M on Yelp reviews: the job of the published measurements, with its real data where it can be fetched.

Special here: padding is masked by *position*, not by token. The tokenizer's padding token also ends texts, so masking
by its id would remove the targets that teach where texts end. Ranks decide together: if one cannot fetch, all use
synthetic tokens of the same shape and random weights of the same model, and ``origin`` says so.

``datasets`` and ``transformers`` are optional (``pip install 'lockstep-ddp[yelp]'``) and imported when asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from ddp_core.models import smollm2_360m

DATASET = "Yelp/yelp_review_full"
MODEL = "HuggingFaceTB/SmolLM2-360M"
VOCAB_SIZE = 49152
NUM_STARS = 5
IGNORED = -100  # the target that torch's cross entropy leaves out

Batch = Mapping[str, torch.Tensor]
T = TypeVar("T")


class Gathers(Protocol):
    """The ranks that decide together; ``Comm`` and every ``Communicator`` fit."""

    def gather_objects(self, item: Any) -> list[Any]: ...


class Reviews(Dataset[dict[str, torch.Tensor]]):
    """Reviews as rows of equal length.

    ``input_ids``, ``attention_mask`` (1 on text, 0 on padding, which is on the right) and ``labels`` (the input, -100
    on padding) are (N, length), int64; ``stars`` is (N,), from 0 to 4.
    """

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


@dataclass(frozen=True)
class Yelp:
    """Reviews to train on and to evaluate with. ``origin`` says where they are from."""

    train: Reviews
    evaluation: Reviews
    origin: str


def reviews(
    num_train: int = 32, num_eval: int = 16, *, length: int = 256, seed: int = 42, comm: Gathers | None = None
) -> Yelp:
    """A random choice of Yelp reviews, the same on every rank, tokenised to ``length`` tokens.

    Where the hub cannot be reached on any rank of ``comm``, all ranks get synthetic tokens of the same shape.

    Raises ImportError if ``datasets`` or ``transformers`` is not installed.
    """
    fetched, reason = _together(lambda: _fetch_reviews(num_train, num_eval, length, seed), comm)
    return (
        synthetic_reviews(num_train, num_eval, length=length, seed=seed, reason=reason) if fetched is None else fetched
    )


def model(
    *, num_labels: int | None = NUM_STARS, device: Any = None, comm: Gathers | None = None
) -> tuple[nn.Module, str]:
    """SmolLM2-360M with its published weights, and where they are from. ``num_labels`` None: the language model.

    Where the hub cannot be reached on any rank of ``comm``, all ranks get random weights. A classifier's head is
    random in any case, and differs by rank until a wrapper broadcasts it.

    Raises ImportError if ``transformers`` is not installed.
    """
    built = smollm2_360m(num_labels=num_labels, device=device)
    weights, reason = _together(_fetch_weights, comm)
    if weights is None:
        return built, f"random weights, because {MODEL} could not be fetched: {reason}"
    missing, unexpected = built.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"score.weight"}:
        raise ValueError(f"{MODEL} has other tensors than expected: missing {missing}, unexpected {unexpected}")
    return built, MODEL


def synthetic_reviews(
    num_train: int = 32, num_eval: int = 16, *, length: int = 256, seed: int = 42, reason: str = "asked for"
) -> Yelp:
    """Random tokens of random length up to ``length``, padded and masked like reviews. They teach nothing."""
    generator = torch.Generator().manual_seed(seed)

    def draw(num: int) -> Reviews:
        lengths = torch.randint(min(8, length), length + 1, (num, 1), generator=generator)
        mask = (torch.arange(length) < lengths).long()
        tokens = torch.randint(3, VOCAB_SIZE, (num, length), generator=generator) * mask
        return Reviews(_columns(tokens, mask, torch.randint(0, NUM_STARS, (num,), generator=generator)))

    return Yelp(draw(num_train), draw(num_eval), f"synthetic tokens, because {DATASET} was not fetched: {reason}")


def tokenise(tokenizer: Callable[..., Any], texts: Sequence[str], stars: Sequence[int], length: int) -> Reviews:
    """``texts`` cut or padded on the right to ``length`` tokens; ``tokenizer`` has the interface of transformers'.

    Raises ValueError if it does not pad on the right.
    """
    out = tokenizer(list(texts), padding="max_length", truncation=True, max_length=length)
    tokens, mask = torch.tensor(out["input_ids"]), torch.tensor(out["attention_mask"])
    if (mask.diff(dim=1) > 0).any():
        raise ValueError("the tokenizer pads on the left; set tokenizer.padding_side = 'right'")
    return Reviews(_columns(tokens, mask, torch.tensor(stars)))


def next_token_loss(forward: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """The language model's mean loss over the batch's real tokens; weigh it by ``num_tokens``."""
    logits = forward(batch["input_ids"])[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"][:, 1:].flatten(), ignore_index=IGNORED)


def num_tokens(batch: Batch) -> int:
    """The number of tokens over which ``next_token_loss`` is the mean."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def stars_loss(forward: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """The classifier's mean loss over the batch's reviews."""
    return F.cross_entropy(forward(batch["input_ids"], batch["attention_mask"]).float(), batch["stars"])


def stars_accuracy(output: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
    """Metric for ``ddp_core.training.evaluate``: (reviews with correctly predicted stars, all reviews)."""
    return (output.argmax(-1) == batch["stars"]).sum(), len(output)


def next_token_accuracy(output: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Metric for ``ddp_core.training.evaluate``: (real tokens predicted from those before, all real tokens)."""
    target = batch["labels"][:, 1:]
    real = target != IGNORED
    return ((output[:, :-1].argmax(-1) == target) & real).sum(), real.sum()


def _columns(tokens: torch.Tensor, mask: torch.Tensor, stars: torch.Tensor) -> dict[str, torch.Tensor]:
    labels = tokens.masked_fill(mask == 0, IGNORED)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels, "stars": stars}


def _fetch_reviews(num_train: int, num_eval: int, length: int, seed: int) -> Yelp:
    datasets, transformers = _require("datasets"), _require("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    raw = datasets.load_dataset(DATASET)
    parts = []
    for split, num in (("train", num_train), ("test", num_eval)):
        chosen = raw[split].shuffle(seed=seed).select(range(num))
        parts.append(tokenise(tokenizer, list(chosen["text"]), list(chosen["label"]), length))
    return Yelp(parts[0], parts[1], DATASET)


def _fetch_weights() -> dict[str, torch.Tensor]:
    transformers = _require("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    return {name: tensor for name, tensor in theirs.state_dict().items() if name != "lm_head.weight"}


def _together(fetch: Callable[[], T], comm: Gathers | None) -> tuple[T | None, str]:
    """The result of ``fetch`` if it succeeds on every rank; else None and the first reason, on every rank."""
    result, reason = None, None
    try:
        result = fetch()
    except Exception as error:
        if not _is_unreachable(error):
            raise
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
    reasons = [each for each in (comm.gather_objects(reason) if comm else [reason]) if each]
    return (None, reasons[0]) if reasons else (result, "")


def _is_unreachable(error: Exception) -> bool:
    """Return whether the network failed. The hub's libraries raise OSError, or sometimes their HTTP client's error."""
    return isinstance(error, OSError) or any(base.__name__ == "TransportError" for base in type(error).__mro__)


def _require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"the Yelp job needs {name}, which cannot be imported ({error}). "
            "Install it with: pip install 'lockstep-ddp[yelp]'"
        ) from error
