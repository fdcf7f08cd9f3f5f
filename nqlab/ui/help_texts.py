"""The help at each control of an experiment: what it is, its formula, what to expect when it moves, the source."""

from __future__ import annotations

from nqlab import slots
from nqlab.analysis.figures import title_of
from nqlab.words import _


def about(name: str) -> str:
    """The help of a setting, by its bare name (a field of the configuration, or ``preset``, ``arms``). KeyError for none."""
    if name == "arms":
        lines = [f"**{title_of(n)}**: {e.formula} ({e.source})" for n, e in slots.QUERY.items()]
        return "  \n".join([_("What races: the query of attention is made so. All see the same batches."), *lines])
    if name in slots.SLOTS:
        lines = [f"**{title}**: {e.formula} ({e.source})" for e in slots.SLOTS[name].values() for title in [_(e.title)]]
        return "  \n".join([_texts()[name], *lines])
    return _texts()[name]


def _texts() -> dict[str, str]:
    return {
        "preset": _(
            "Where all settings start from. tiny takes seconds a run and shows the paper's ordering at its learning rate; "
            "small and medium take minutes; gpu is nanoGPT's recipe for a GPU."
        ),
        "corpus": _(
            "What the models learn to write, character by character. The loss is in nats per character: ln V for who guesses evenly "
            "among V characters. Losses on different texts can't be compared."
        ),
        "bottleneck": _(
            "Width R of f in q = (x + f(x))/2, f(x) = LN(GELU(RMSNorm(x) W_1) W_2), W_1 of shape C × R. With R = C/2 it has the size of "
            "W_Q but for two gains (2C numbers more); R = C/2 − 1 matches exactly. Narrower: less capacity, fewer parameters. "
            "(arXiv:2603.13381)"
        ),
        "learning_rate": _(
            "The peak of the schedule: reached by linear warm-up, then a cosine down to a tenth. **The answer depends on it**: at a low "
            "rate the nonlinear query leads, near the best rate the lead melts, very high rates break some variants and not others. "
            "Try three times as much."
        ),
        "weight_decay": _(
            "AdamW's λ: each update also shrinks every matrix by the factor 1 − ηλ (gains and other vectors are spared). At small sizes "
            "it changes little between 0.01 and 0.1; large values hold the loss up. (Loshchilov & Hutter 2019, arXiv:1711.05101)"
        ),
        "seed": _(
            "Of the start and of the batches, the same for all variants, so that their curves are a pair. Another seed moves every loss "
            "by about 0.01 nats: one seed decides nothing."
        ),
        "steps": _(
            "Optimiser steps. The schedule ends with them, so a run with half the steps is another run, not the first half of this one. "
            "More steps: lower loss, until the text is learnt by heart."
        ),
        "n_layer": _("Blocks of attention and MLP, one after the other. Loss falls slowly with depth; time grows in proportion."),
        "n_head": _("Attention heads H of size D = C/H each; scores are q·k/√D. n_embd must be a multiple of it."),
        "n_embd": _("Width C of the residual stream. Parameters grow with 12 C² a block; wider models want lower learning rates."),
        "block_size": _("Context length T in characters: how far back attention sees. Attention's cost grows with T²."),
        "batch_size": _("Windows B of T characters a step. More of them: less noise in the gradient, more time a step."),
        "eval_interval": _("Steps between evaluations on validation text. How often one looks changes no curve."),
        "eval_windows": _("Windows of an evaluation, spread evenly over the validation text and always the same. More: less noise."),
        "sample_interval": _("Steps between samples; 0 for none. Sampling changes no curve."),
        "checkpoint_interval": _("Steps between checkpoints: what a stopped or broken run goes on from, and what Microscope looks into."),
        "dropout": _("Share of activations set to zero in training. It helps where a text is learnt by heart, and costs where it is not."),
        "grad_clip": _("Largest norm of the gradient; longer ones are scaled down to it. 0 switches clipping off: high rates then "
                       "break sooner."),
        "init_std": _("Standard deviation of the initial weights; output matrices of blocks get it divided by √(2 n_layer). "
                      "GPT-2 has 0.02."),
        "min_lr": _("Learning rate at the last step. Empty: a tenth of the peak. Losses before the rate has come down say little."),
        "warmup_steps": _("Steps of linear warm-up. Empty: a tenth of the steps, at most 100. Less of it: high rates break sooner."),
        "query_scale": _("Factor on the whole query. Empty: 1 for linear, 1/2 for the others, as in the papers. It acts as a "
                         "temperature of attention."),
        "query_output_gain": _("Initial gain of f's last norm. Empty: 1, as in the paper; 0 starts at the identity query, f silent."),
        "ffn_hidden": _("Hidden width of the MLP. Empty: 4C. The papers' controls are 4.75C (+12.5 % parameters) and 3.5C."),
        "threads": _("CPU threads. Empty: this machine's share. The same number is needed for the same curve, bit for bit."),
        "tied": _("The output matrix is the token embedding. Untied: C·V parameters more; the redundancy argument reads differently."),
        "compile": _(
            "Compile the update in the background and change over when it is ready. Faster on long runs; from then on the curve repeats "
            "closely, not bit for bit."
        ),
        "feedforward": _("What follows attention in each block. With experts, the active parameters are matched, the total grows."),
        "position": _("How a character's place is told. RoPE acts after the query is made, so W_Q stays as redundant as it was."),
        "key": _("How the key is made: the paper's own open question beside the query. R is shared with the query's f."),
        "value": _("How the value is made; as the key."),
        "qk_norm": _(
            "Each head's q and k divided by their RMS (eps 1e-6) before they are compared: scores stay bounded, so high learning rates "
            "break later. It may do what f's last norm does for the nonlinear query."
        ),
        "query_experts": _("Nonlinear queries in a routed one. Empty: 2. They share R; a softmax router weighs them for each character."),
        "n_experts": _("Experts of a mixture. Empty: 4. Each token goes to the best top_k of them."),
        "top_k": _("Experts that each token sees. Empty: 1, as in Switch (arXiv:2101.03961)."),
        "norm": _(
            "What stands before attention, before the MLP and at the end. DyT and Derf squash instead of norming: they start slowly "
            "from embeddings of 0.02; set init_std to 0.2."
        ),
        "activation": _("The nonlinearity of the MLP; f's own GELU stays."),
        "device": _("Where it trains. auto: a GPU where there is one. Curves of different devices agree closely, not bit for bit."),
        "dtype": _(
            "What matrices are multiplied in. bfloat16 is faster where the device does it itself, and rounds more: over five paired seeds "
            "it changed the final loss by less than 0.002 nats (python -m nqlab compare bf16-small --by dtype)."
        ),
        "sample_prompt": _("What samples begin with, \\n for a new line; only characters that the text has. Empty: a new line."),
    }  # fmt: skip
