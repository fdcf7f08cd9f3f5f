"""What a query does inside a model, read off at fixed windows; and what the model loses when f is taken away.

Everything is seen from outside, by hooks on each block's query and key: with x the block input after the
pre-attention norm and s the query's scale, a query with a skip is q = s (x + f(x)), so f(x) = q/s - x whatever f is
(x W_Q for ``residual_linear``, 0 for ``identity``). The ``linear`` query has no skip: its learned part is x W_Q.

Nothing here trains. A model without f is an ``identity`` model, one with a linear f a ``residual_linear`` model, and
that is what the copies are, configuration and all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from nqlab.analysis.attention_maps import attention_weights, entropies
from nqlab.config import ModelConfig
from nqlab.corpus import Corpus
from nqlab.model.attention import CausalSelfAttention
from nqlab.model.gpt import GPT, Block
from nqlab.model.query import IdentityQuery, LinearQuery, Query, ResidualLinearQuery
from nqlab.training.batches import validation_windows

CHUNK_TOKENS = 4096


@dataclass(frozen=True)
class LayerProbe:
    """One layer's query on the validation windows; all numbers are without unit.

    ``f_ratio`` is the mean of |f(x)| / |x| over positions, ``cosine`` the mean of cos(q, x), ``f_rank`` the effective
    rank of the matrix of all f(x), (positions, C), ``q_rank`` that of all q, and ``logit_std`` the standard deviation of
    q_h . k_h / sqrt(D) over windows, heads and the pairs that the causal mask lets through. ``entropy`` is that of the
    attention weights of a position, in nats, its mean over windows, heads and positions; attention that prefers nothing
    has :func:`~nqlab.analysis.attention_maps.uniform_entropy`. For the ``linear`` query f is x W_Q.
    """

    layer: int
    f_ratio: float
    cosine: float
    f_rank: float
    q_rank: float
    logit_std: float
    entropy: float


def has_f(model: GPT) -> bool:
    """Whether the query is s (x + f(x)) with something learned in f; ``linear`` has no skip, and ``identity`` no f."""
    return not any(type(attn.query) in (LinearQuery, IdentityQuery) for attn in _attentions(model))


def probe(model: GPT, corpus: Corpus, windows: int = 64) -> list[LayerProbe]:
    """Each layer's :class:`LayerProbe` on ``windows`` fixed validation windows of ``corpus``.

    ValueError when the corpus has another vocabulary size than the model, or no window of its block size.
    """
    ids = _windows_of(model, corpus, windows, train=False)
    return [_layer_probe(i, attn, seen) for i, (attn, seen) in enumerate(zip(_attentions(model), _seen(model, ids)))]


def effective_rank(matrix: Tensor) -> float:
    """exp of the entropy of the normalised singular values: exp(-sum p ln p), p = sigma / sum sigma; (N, C) -> 1 .. min(N, C).

    Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality" (EUSIPCO). k equal singular values
    and no others give k. The columns are not centred. Ours: 0 for the zero matrix. ValueError unless two-dimensional.
    """
    if matrix.dim() != 2:
        raise ValueError(f"a matrix has 2 dimensions, not {matrix.dim()}; flatten all but the last axis")
    sigma = torch.linalg.svdvals(matrix.detach().cpu().double())
    total = sigma.sum()
    if total == 0:
        return 0.0
    p = sigma / total
    return float(torch.special.entr(p).sum().exp())


def without_f(model: GPT) -> GPT:
    """A copy with f set to zero in every layer and nothing else changed: q = s x, an ``identity`` model.

    ValueError for the ``linear`` query, which has no skip to fall back on.
    """
    return _with_queries(model, "identity", lambda config, _: IdentityQuery(config))


def linear_maps(model: GPT, corpus: Corpus, windows: int = 256) -> list[Tensor]:
    """For each layer the best linear f: the A, (C, C) in float64, least in sum |x A - f(x)|^2 over fixed **training** windows.

    Row vectors, no bias, like every projection of the lab; the A of least norm where x does not span all of C (after a
    LayerNorm it does not). ValueError as :func:`probe`, and for the ``linear`` query.
    """
    _check_skip(model)
    ids = _windows_of(model, corpus, windows, train=True)
    pairs = ((seen.x.double(), _learned(attn.query, seen).double()) for attn, seen in zip(_attentions(model), _seen(model, ids)))
    return [torch.linalg.lstsq(x, f, driver="gelsd").solution for x, f in pairs]  # (C, C) each


def explained(model: GPT, corpus: Corpus, maps: Sequence[Tensor], windows: int = 64) -> list[float]:
    """The share of f that ``maps`` (one A a layer) give back on fixed **validation** windows: 1 - sum |f - x A|^2 / sum |f|^2.

    1 is all of it; 0 is what A = 0 gives; it may be negative, and is NaN where f is zero. ValueError as :func:`linear_maps`,
    and when the number of maps is not the number of layers.
    """
    _check_skip(model)
    _check_maps(model, maps)
    shares = []
    for attn, seen, a in zip(_attentions(model), _seen(model, _windows_of(model, corpus, windows, train=False)), maps):
        f = _learned(attn.query, seen).double()
        shares.append(float(1 - (f - seen.x.double() @ a).square().sum() / f.square().sum()))
    return shares


def with_linear_f(model: GPT, maps: Sequence[Tensor]) -> GPT:
    """A copy whose f(x) is x A in every layer, ``maps`` holding the A's (:func:`linear_maps`): a ``residual_linear`` model.

    ValueError for the ``linear`` query, and when the number of maps is not the number of layers.
    """
    _check_maps(model, maps)

    @torch.no_grad()
    def query(config: ModelConfig, layer: int) -> Query:
        new = ResidualLinearQuery(config).double()  # the copy takes the model's own precision afterwards
        new.proj.weight.copy_(maps[layer].T)
        return new

    return _with_queries(model, "residual_linear", query)


# --- what the hooks see


@dataclass(frozen=True)
class _Seen:
    """What a layer does on some windows, on the CPU: x and q (N T, C); queries and keys by head as scores compare them, (N, H, T, D)."""

    x: Tensor
    q: Tensor
    q_heads: Tensor
    k_heads: Tensor


def _layer_probe(layer: int, attn: CausalSelfAttention, seen: _Seen) -> LayerProbe:
    f = _learned(attn.query, seen)
    return LayerProbe(
        layer=layer,
        f_ratio=float((f.norm(dim=-1) / seen.x.norm(dim=-1)).mean()),
        cosine=float(cosine_similarity(seen.q, seen.x, dim=-1).mean()),
        f_rank=effective_rank(f),
        q_rank=effective_rank(seen.q),
        logit_std=_logit_std(seen.q_heads, seen.k_heads),
        entropy=_entropy(seen.q_heads, seen.k_heads),
    )


def _learned(query: nn.Module, seen: _Seen) -> Tensor:
    unscaled = seen.q / cast(Query, query).scale
    return unscaled if type(query) is LinearQuery else unscaled - seen.x


def _logit_std(q: Tensor, k: Tensor) -> float:
    """Of q . k / sqrt(D) over the causal pairs, the diagonal included; one window at a time, so that T x T stays small."""
    time, size = q.shape[2:]
    visible = torch.ones(time, time, dtype=torch.bool).tril()
    logits = [(a @ b.transpose(-1, -2) / size**0.5)[:, visible] for a, b in zip(q, k)]  # (H, T (T+1)/2) each
    return float(torch.cat(logits).double().std(correction=0))


def _entropy(q: Tensor, k: Tensor) -> float:
    """Mean entropy of the attention weights; one window at a time, for the same reason."""
    return float(torch.stack([entropies(attention_weights(a, b)).double().mean() for a, b in zip(q, k)]).mean())


@torch.no_grad()
def _seen(model: GPT, ids: Tensor) -> list[_Seen]:
    """What each layer's query and key did on ids (N, T)."""
    attentions = _attentions(model)
    pieces: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in attentions]
    was_training = model.training
    model.eval()
    try:
        for chunk in ids.split(max(1, CHUNK_TOKENS // ids.shape[1])):
            with _recorded([m for a in attentions for m in (a.query, a.key)]) as calls:
                model(chunk)
            for place, ((x, q), (_, k)) in zip(pieces, zip(calls[::2], calls[1::2])):
                place.append((x, q, k))
    finally:
        model.train(was_training)
    return [_joined(attn, place) for attn, place in zip(attentions, pieces)]


def _joined(attn: CausalSelfAttention, pieces: list[tuple[Tensor, Tensor, Tensor]]) -> _Seen:
    x, q, k = (torch.cat(parts) for parts in zip(*pieces))  # (N, T, C) each
    q_heads, k_heads = (t.view(*t.shape[:2], attn.n_head, attn.head_size).transpose(1, 2) for t in (q, k))  # (N, H, T, D)
    return _Seen(x.flatten(0, 1), q.flatten(0, 1), *attn.compared(q_heads, k_heads))


@contextmanager
def _recorded(modules: Sequence[nn.Module]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """(input, output) of each module's call, in the order of ``modules``, filled in by one forward pass."""
    calls: list[Any] = [None] * len(modules)

    def keep(place: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls[place] = (inputs[0].detach().cpu(), output.detach().cpu())

        return hook

    handles = [module.register_forward_hook(keep(i)) for i, module in enumerate(modules)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


# --- windows, copies, checks


def _windows_of(model: GPT, corpus: Corpus, count: int, train: bool) -> Tensor:
    if len(corpus.vocabulary) != model.vocab_size:
        raise ValueError(
            f"corpus {corpus.name!r} has {len(corpus.vocabulary)} characters, the model knows {model.vocab_size}; "
            "take the corpus it was trained on"
        )
    ids = corpus.ids[: corpus.split_at] if train else corpus.ids[corpus.split_at :]
    inputs, _ = validation_windows(torch.from_numpy(ids), model.config.block_size, count)  # evenly spread, no overlap: of either part
    return inputs.to(next(model.parameters()).device)


def _with_queries(model: GPT, name: str, make: Callable[[ModelConfig, int], Query]) -> GPT:
    _check_skip(model)
    new = copy.deepcopy(model)
    for layer, attn in enumerate(_attentions(new)):
        options: dict[str, Any] = {"bottleneck": None, "query_output_gain": None, "query_scale": attn.query.scale}
        new.config = model.config.model_copy(update={"query": name, **options})
        attn.query = make(new.config, layer).to(attn.out.weight)
    return new


def _attentions(model: GPT) -> list[CausalSelfAttention]:
    return [cast(Block, block).attn for block in model.blocks]


def _check_skip(model: GPT) -> None:
    if any(type(attn.query) is LinearQuery for attn in _attentions(model)):
        raise ValueError(f"query {model.config.query!r} has no skip, hence no f to take away; take a run with q = s (x + f(x))")


def _check_maps(model: GPT, maps: Sequence[Tensor]) -> None:
    if len(maps) != model.config.n_layer:
        raise ValueError(f"{len(maps)} maps for {model.config.n_layer} layers; give one a layer, as linear_maps does")
