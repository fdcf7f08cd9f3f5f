"""Named configurations as functions, and the arms of a comparison; a variation is ``replace``."""

from __future__ import annotations

from collections.abc import Callable

from nqlab import slots
from nqlab.config import ModelConfig, RunConfig, TrainingConfig, replace


def tiny() -> RunConfig:
    """2 layers, 2 heads, C 64, context 64: a run in seconds; the paper's ordering shows at this learning rate."""
    return RunConfig()


def small() -> RunConfig:
    """4 layers, 4 heads, C 128, context 64, batch 12: nanoGPT's recipe for a CPU."""
    return RunConfig(
        model=ModelConfig(n_layer=4, n_head=4, n_embd=128, block_size=64),
        training=TrainingConfig(steps=2000, batch_size=12, eval_interval=100, checkpoint_interval=200, sample_interval=500),
    )


def medium() -> RunConfig:
    """4 layers, 4 heads, C 128, context 128, batch 32: the small model with a longer memory and larger batches."""
    return RunConfig(
        model=ModelConfig(n_layer=4, n_head=4, n_embd=128, block_size=128),
        training=TrainingConfig(steps=2000, batch_size=32, eval_interval=100, checkpoint_interval=200, sample_interval=500),
    )


def gpu() -> RunConfig:
    """6 layers, 6 heads, C 384, context 256, batch 64, dropout 0.2: nanoGPT's character recipe; for a GPU."""
    return RunConfig(
        model=ModelConfig(n_layer=6, n_head=6, n_embd=384, block_size=256, dropout=0.2),
        training=TrainingConfig(
            steps=5000, batch_size=64, eval_interval=250, log_interval=10, checkpoint_interval=500, sample_interval=1000
        ),
    )


def gpt2() -> RunConfig:
    """12 layers, 12 heads, C 768, context 1024: the size of the paper; here to check its parameter counts."""
    return RunConfig(
        model=ModelConfig(n_layer=12, n_head=12, n_embd=768, block_size=1024),
        training=TrainingConfig(
            steps=60_002, batch_size=480, learning_rate=6e-4, warmup_steps=2000, betas=(0.9, 0.95),
            eval_interval=1000, log_interval=10, checkpoint_interval=1000, sample_interval=0,
        ),
    )  # fmt: skip


PRESETS: dict[str, Callable[[], RunConfig]] = {"tiny": tiny, "small": small, "medium": medium, "gpu": gpu, "gpt2": gpt2}

# Controls of the papers: the linear query with another MLP, as a multiple of C.
MLP_CONTROLS: dict[str, tuple[float, str]] = {
    "wide_mlp": (4.75, "linear, MLP 4.75C (+12.5 %)"),
    "reduced_mlp": (3.5, "linear, MLP 3.5C (as many parameters as identity)"),
}

ARMS: dict[str, str] = {name: e.title for name, e in slots.QUERY.items()} | {n: title for n, (_, title) in MLP_CONTROLS.items()}


def preset(name: str) -> RunConfig:
    """The named preset; ValueError lists the names."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is unknown; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]()


def arm(config: RunConfig, name: str) -> RunConfig:
    """``config`` with the query variant, or the control, called ``name``; ValueError lists the names.

    The size of f and the query's scale stay as ``config`` has them; an arm that does not read them ignores them.
    """
    if name in MLP_CONTROLS:
        hidden = round(MLP_CONTROLS[name][0] * config.model.n_embd)
        return replace(config, {"model.query": "linear", "model.ffn_hidden": hidden})
    if name not in slots.QUERY:
        raise ValueError(f"query {name!r} is unknown; choose one of {', '.join(ARMS)}")
    return replace(config, {"model.query": name})


def arm_of(config: RunConfig) -> str:
    """The arm a configuration belongs to: its query's name, or the control's where the MLP has that width."""
    model = config.model.resolved()
    for name, (multiple, _) in MLP_CONTROLS.items():
        if model.query == "linear" and model.ffn_hidden == round(multiple * model.n_embd):
            return name
    return model.query
