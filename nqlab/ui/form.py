"""What the controls hold: an experiment goes in, validated configurations come out, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from nqlab import corpus as corpora
from nqlab import experiment as experiments
from nqlab.config import RunConfig
from nqlab.experiment import Experiment
from nqlab.runs import launch

INTEGERS = (
    "model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "training.batch_size",
    "training.eval_interval", "training.eval_windows", "training.sample_interval", "training.checkpoint_interval",
)  # fmt: skip
FLOATS = ("model.dropout", "training.grad_clip", "model.init_std")
OPTIONAL = (
    "training.min_lr", "training.warmup_steps", "model.query_scale", "model.query_output_gain", "model.ffn_hidden",
    "model.query_experts", "model.n_experts",
    "model.top_k", "training.threads",
)  # fmt: skip
SWITCHES = ("model.tied", "model.qk_norm", "training.compile")
CHOICES = (
    "model.norm", "model.activation", "model.feedforward", "model.position", "model.key", "model.value",
    "training.device", "training.dtype",
)  # fmt: skip
FRONT = ("corpus", "seed", "training.steps", "training.learning_rate", "training.weight_decay", "model.bottleneck")
PROMPT = "training.sample_prompt"
FIELDS = (*FRONT, *INTEGERS, *FLOATS, *OPTIONAL, *SWITCHES, *CHOICES, PROMPT)


@dataclass(frozen=True)
class Form:
    """What the controls describe: configurations to race, or the reason why there are none."""

    configs: list[RunConfig] = field(default_factory=list)
    corpus: corpora.Corpus | None = None
    error: str | None = None
    experiment: Experiment | None = None


def key(name: str) -> str:
    """Where the session keeps a control's value."""
    return f"form.{name}"


def begin() -> None:
    """At the start of a session, put the address's experiment into the controls, and keep what was wrong in it."""
    if key("preset") not in st.session_state:
        experiment, problems = experiments.read(st.query_params)
        st.session_state["form.problems"] = problems
        adopt(experiment)


def adopt(experiment: Experiment) -> None:
    """Put an experiment into the controls; before they are drawn. What no control shows is carried along."""
    state, values = st.session_state, experiments.unresolved(experiment.base)
    state[key("preset")], state[key("arms")] = experiment.preset, list(experiment.arms)
    for name in FIELDS:
        state[key(name)] = values[name]
    if values["model.bottleneck"] is None:
        halve_bottleneck()
    state[key(PROMPT)] = values[PROMPT].replace("\n", "\\n")
    state["form.carried"] = {name: value for name, value in experiment.changes.items() if name not in FIELDS}


def adopt_preset() -> None:
    """Put the chosen preset's values into the controls; the variants stay."""
    arms = tuple(st.session_state[key("arms")]) or experiments.DEFAULT_ARMS
    adopt(Experiment(st.session_state[key("preset")], arms))


def halve_bottleneck() -> None:
    """R = C/2, as the paper has it."""
    st.session_state[key("model.bottleneck")] = max(1, int(st.session_state[key("model.n_embd")] or 2) // 2)


def read() -> Form:
    """What the controls describe now."""
    state = st.session_state
    changes = dict(state["form.carried"]) | {name: state[key(name)] for name in FIELDS}
    changes[PROMPT] = str(changes[PROMPT]).replace("\\n", "\n")
    try:
        if not state[key("arms")]:
            raise ValueError("no variant is chosen; choose at least one")
        experiment = experiments.of(state[key("preset")], state[key("arms")], changes)
        corpus = corpora.load(experiment.base.corpus)
        corpus.check(experiment.base.model.block_size)
        launch.check(experiment.configs)
        return Form(experiment.configs, corpus, experiment=experiment)
    except (ValueError, OSError) as error:
        return Form(error=str(error))


def to_address(experiment: Experiment) -> None:
    """Write into the address what differs from the usual experiment; what else stands there stays."""
    wanted = {} if experiment == Experiment() else experiment.query()
    others = {name: value for name, value in st.query_params.items() if name in experiments.OTHER}
    if {**others, **wanted} != dict(st.query_params.items()):
        st.query_params.from_dict(others | wanted)
