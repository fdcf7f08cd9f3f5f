"""What the algebra means for a trained model of the lab: the gauge that keeps its function, and the misuse that does not.

In a pre-norm GPT with both skips W_Q = I is a restriction, not a rewriting. Overwriting W_Q by I in a checkpoint
leaves K, V and everything that writes the stream as they were, so it is another model: at the start of training hardly
a worse one, as attention is flat, and worse the more attention has learned.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import cast

import torch
from torch import nn

from nqlab.analysis.redundancy.architecture import Architecture, check_choice, of_config
from nqlab.analysis.redundancy.gauge import gauge_layer
from nqlab.analysis.redundancy.small import Weights
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT, Block
from nqlab.model.query import LinearQuery
from nqlab.training.batches import validation_windows
from nqlab.training.evaluation import window_losses


@torch.no_grad()
def weights_of(model: GPT) -> tuple[Architecture, Weights]:
    """A model of the lab in the notation of the algebra, float64 on the CPU; the query's scale goes into W_Q.

    ValueError for another query than ``linear``, or a norm that the rule does not know.
    """
    architecture, last = of_config(model.config, model.vocab_size), model.config.n_layer
    out: Weights = {"E": model.wte.weight}
    out |= {"P": model.wpe.weight} if architecture.positions == "learned" else {}
    out |= {} if model.config.tied else {"U": model.lm_head.weight.T}
    for layer, block in enumerate(_blocks(model)):
        attn, ffn = block.attn, block.ffn
        linears = {"K": attn.key, "V": attn.value, "O": attn.out, "A": ffn.hidden, "B": ffn.out}
        out |= {f"{layer}.{letter}": linear.weight.T for letter, linear in linears.items()}
        out[f"{layer}.Q"] = _projection(attn.query, model.config.query).weight.T * attn.query.scale
        out |= {f"gain.x{layer}": block.norm_1.weight, f"gain.m{layer}": block.norm_2.weight} if architecture.norm != "none" else {}
    out |= {f"gain.x{last}": model.norm_f.weight} if architecture.norm != "none" else {}
    return architecture, {name: tensor.detach().cpu().double() for name, tensor in out.items()}


@torch.no_grad()
def per_head_gauge(model: GPT) -> tuple[GPT, int]:
    """A copy in float64, on the CPU, that computes the same logits with a D by D block of every Q_h and V_h equal to I.

    Also the numbers saved, 2 C D a layer. The query's scale multiplies W_Q from outside and is left alone. ValueError
    for another query, key or value than ``linear``, and where something stands between W_Q and W_K: rope, or qk_norm.
    """
    config = model.config
    for projection in ("key", "value"):
        check_choice(projection, getattr(config, projection), ("linear",))
    if config.position == "rope" or config.qk_norm:
        between = f"position {config.position!r}" if config.position == "rope" else "qk_norm"
        raise ValueError(f"{between} stands between W_Q and W_K, so that no block of W_Q can go into W_K; take a run without it")
    new = copy.deepcopy(model).cpu().double()
    for block in _blocks(new):
        attn = block.attn
        linears = [_projection(attn.query, model.config.query), attn.key, attn.value, attn.out]
        q, k, v, o = (linear.weight.T.clone() for linear in linears)
        for linear, w in zip(linears, gauge_layer(q, k, v, o, attn.n_head)):
            linear.weight.copy_(w.T)
    return new, 2 * model.config.n_layer * model.config.n_embd * model.config.head_size


@torch.no_grad()
def identity_misuse(model: GPT, layers: Iterable[int] | None = None, scale: float | None = 1.0) -> GPT:
    """A copy with W_Q overwritten by ``scale`` times I in some layers (all by default) and nothing else changed.

    The function is not preserved. (``nn.Linear`` stores the transpose, which for I is the same.) ``scale`` 1 is the
    naive overwrite, q = x; 1/2 is what the ``identity`` variant, trained as such, computes; None takes the scale at
    which I has W_Q's Frobenius norm, so that no one blames the temperature. The model's own ``query_scale`` stays.
    ValueError for another query than ``linear``, or a layer that is not there.
    """
    new = copy.deepcopy(model)
    blocks = _blocks(new)
    for layer in range(len(blocks)) if layers is None else layers:
        if not 0 <= layer < len(blocks):
            raise ValueError(f"layer {layer} is not there; take 0 to {len(blocks) - 1}")
        weight = _projection(blocks[layer].attn.query, model.config.query).weight
        factor = float(weight.norm()) / len(weight) ** 0.5 if scale is None else scale
        nn.init.eye_(weight).mul_(factor)
    return new


@torch.no_grad()
def loss_of(model: GPT, corpus: Corpus, windows: int = 256) -> float:
    """Mean loss in nats per character over the fixed validation windows, as training evaluates it, in the model's precision."""
    device = next(model.parameters()).device
    ids = torch.from_numpy(corpus.ids[corpus.split_at :]).to(device)
    losses = window_losses(model, *validation_windows(ids, model.config.block_size, windows))
    assert losses is not None
    return float(losses.mean())


def _blocks(model: GPT) -> list[Block]:
    return [cast(Block, block) for block in model.blocks]


def _projection(query: nn.Module, name: str) -> nn.Linear:
    if type(query) is not LinearQuery:
        raise ValueError(f"query {name!r} has no W_Q to speak of; take a run with query 'linear'")
    return query.proj
