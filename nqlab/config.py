"""One frozen, validated description of a run: model, training, corpus, seed. JSON in, JSON out.

A field left at ``None`` means "the default of whatever is in that slot"; :meth:`RunConfig.resolved` writes the
number in. Hash, difference and the run folder all use the resolved form, so that a default spelled out and a
default left out are the same run. Fields that no chosen slot reads are dropped there.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nqlab import slots
from nqlab.words import _

# Settings that came after runs had been kept, with the value at which a run is what it was before they came: at this
# value they are left out of the hash, so that old runs, and studies half filled, keep theirs.
LATER: dict[str, Any] = {
    "training.compile": False,
    "model.key": "linear",
    "model.value": "linear",
    "model.position": "learned",
    "model.qk_norm": False,
    "model.n_experts": None,
    "model.top_k": None,
    "model.query_experts": None,
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(_Frozen):
    """The shape of the transformer. C = n_embd, H = n_head, D = C/H, T = block_size, R = bottleneck."""

    n_layer: int = Field(2, ge=1, le=128, description="number of blocks")
    n_head: int = Field(2, ge=1, le=256, description="attention heads H")
    n_embd: int = Field(64, ge=2, le=16384, description="width C")
    block_size: int = Field(64, ge=1, le=65536, description="context length T")
    query: str = Field("linear", description="how the query is made")
    key: str = Field("linear", description="how the key is made")
    value: str = Field("linear", description="how the value is made")
    position: str = Field("learned", description="how a character's place is told: a learned vector, or rope, which turns query and key")
    norm: str = "layernorm"
    activation: str = "gelu"
    feedforward: str = "dense"
    qk_norm: bool = Field(False, description="each head's query and key divided by their RMS before they are compared")
    bottleneck: int | None = Field(None, ge=1, description="width R of f, for queries, keys and values that have one; default C/2")
    query_scale: float | None = Field(None, gt=0, description="factor on the whole query; default 1 for linear, 1/2 for the rest")
    query_output_gain: float | None = Field(None, ge=0, description="initial gain of f's last norm; 0 starts at the identity query")
    query_experts: int | None = Field(None, ge=1, le=64, description="nonlinear queries in a routed one, which share R; default 2")
    ffn_hidden: int | None = Field(
        None, ge=1, description="hidden width of the MLP, of a mixture that of the top_k experts together; default 4C"
    )
    n_experts: int | None = Field(None, ge=1, le=64, description="experts of a mixture; default 4")
    top_k: int | None = Field(None, ge=1, le=64, description="experts that each token sees; default 1, as in Switch")
    tied: bool = Field(True, description="output matrix shared with the token embedding")
    dropout: float = Field(0.0, ge=0, lt=1)
    init_std: float = Field(0.02, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        for slot in slots.SLOTS:
            slots.entry(slot, getattr(self, slot))
        if self.n_embd % self.n_head:
            below = self.n_embd // self.n_head * self.n_head
            widths = [str(c) for c in (below, below + self.n_head) if c]
            heads = sorted((h for h in range(1, self.n_embd + 1) if self.n_embd % h == 0), key=lambda h: (abs(h - self.n_head), h))[:4]
            raise ValueError(
                f"n_embd {self.n_embd} is not a multiple of n_head {self.n_head}; "
                f"take n_embd {' or '.join(widths)}, or n_head {', '.join(map(str, sorted(heads)))}"
            )
        resolved = self.resolved()
        for slot in slots.SLOTS:
            if problem := slots.entry(slot, getattr(self, slot)).check(resolved):
                raise ValueError(problem)
        return self

    @property
    def head_size(self) -> int:
        """D = C/H."""
        return self.n_embd // self.n_head

    def resolved(self) -> ModelConfig:
        """The same model with every default of its slots written out, and options no slot reads set to None."""
        read: dict[str, slots.Default] = {}
        for slot in slots.SLOTS:
            read |= slots.entry(slot, getattr(self, slot)).options
        known = {name for entries in slots.SLOTS.values() for e in entries.values() for name in e.options}
        values = {name: getattr(self, name) if name in read else None for name in known}
        for name, default in read.items():
            if values[name] is None:
                values[name] = default(self.n_embd)
        return self.model_copy(update=values)


class TrainingConfig(_Frozen):
    """How the model is trained. Steps are optimiser steps; intervals are in steps."""

    steps: int = Field(1000, ge=1, le=10_000_000)
    batch_size: int = Field(16, ge=1, le=65536, description="windows per step B")
    learning_rate: float = Field(1e-3, gt=0, description="peak rate, after warm-up")
    min_lr: float | None = Field(None, ge=0, description="rate at the last step; default a tenth of the peak")
    warmup_steps: int | None = Field(None, ge=0, description="linear warm-up; default a tenth of the steps, at most 100")
    weight_decay: float = Field(0.1, ge=0, description="on tensors of two or more dimensions")
    betas: tuple[float, float] = (0.9, 0.99)
    grad_clip: float = Field(1.0, ge=0, description="largest gradient norm; 0 switches clipping off")
    eval_interval: int = Field(50, ge=1)
    eval_windows: int = Field(256, ge=2, description="validation windows per evaluation, spread evenly, always the same")
    log_interval: int = Field(1, ge=1, description="a step event every so many steps")
    checkpoint_interval: int = Field(100, ge=1)
    sample_interval: int = Field(250, ge=0, description="a sample every so many steps; 0 for none")
    sample_prompt: str = Field("", description="what samples begin with; empty: a new line, or the text's first character if it has none")
    sample_length: int = Field(200, ge=1, le=10_000)
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="what matrices are multiplied in; bfloat16 is faster where the device does it itself, and rounds more. Over five "
        "paired seeds of the linear query it changed the final loss by -0.00003 nats at the tiny size (interval -0.0003 to +0.0002) and "
        "by +0.0004 at small (-0.0006 to +0.0014): python -m nqlab compare bf16-small --by dtype",
    )
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; default the machine's share for one race")
    compile: bool = Field(
        False,
        description="compile the update in the background and change over when it is ready, half a minute or more after the start; "
        "the rounding differs from then on, so the curve repeats closely, but not bit for bit",
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        if not all(0 <= b < 1 for b in self.betas):
            raise ValueError(f"betas {self.betas} must both lie in [0, 1)")
        if self.min_lr is not None and self.min_lr > self.learning_rate:
            raise ValueError(f"min_lr {self.min_lr} is above learning_rate {self.learning_rate}; lower it or leave it out")
        return self

    def resolved(self) -> TrainingConfig:
        """The same training with min_lr and warm-up written out."""
        min_lr = self.learning_rate / 10 if self.min_lr is None else self.min_lr
        warmup = min(100, self.steps // 10) if self.warmup_steps is None else min(self.warmup_steps, self.steps)
        return self.model_copy(update={"min_lr": min_lr, "warmup_steps": warmup})


class RunConfig(_Frozen):
    """Everything that decides a curve, but for the machine: model, training, corpus, seed."""

    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    corpus: str = Field("shakespeare", min_length=1, description="a corpus name, or text:HASH of a person's own text")
    seed: int = Field(0, ge=0, lt=2**63)

    def resolved(self) -> RunConfig:
        """The complete description, as it is hashed, compared and stored."""
        return self.model_copy(update={"model": self.model.resolved(), "training": self.training.resolved()})

    def to_json(self) -> str:
        """The resolved configuration as indented JSON."""
        return self.resolved().model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> RunConfig:
        """Inverse of :meth:`to_json`; ValueError says in one line what does not fit."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(explain(error)) from None

    def flat(self) -> dict[str, Any]:
        """``{"model.n_layer": 2, ..., "seed": 0}`` of the resolved configuration."""
        out: dict[str, Any] = {}
        for key, value in self.resolved().model_dump(mode="json").items():
            out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        return out

    def short_hash(self) -> str:
        """Ten hexadecimal digits of the resolved configuration's SHA-256; the same on every machine."""
        told = {key: value for key, value in self.flat().items() if key not in LATER or value != LATER[key]}
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:10]


def difference(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields in which two runs differ: ``{dotted field: (value in a, value in b)}``."""
    left, right = a.flat(), b.flat()
    return {key: (left[key], right[key]) for key in left if left[key] != right[key]}


def difference_line(a: RunConfig, b: RunConfig) -> str:
    """:func:`difference` in one readable line, "no difference" if there is none."""
    parts = [f"{key.split('.')[-1]} {shown(x)} → {shown(y)}" for key, (x, y) in difference(a, b).items()]
    return ", ".join(parts) or "no difference"


def shown(value: Any) -> str:
    """A setting's value as people read it."""
    return f"{value:g}" if isinstance(value, float) else "–" if value is None else str(value)


def setting_words(settings: Mapping[str, Any]) -> str:
    """Some settings in one line, in the reader's language: ``learning rate 0.001, weight decay 0.1``."""
    names = {"learning_rate": _("learning rate"), "weight_decay": _("weight decay"), "bottleneck": _("bottleneck")}
    bare = {key: key.split(".")[-1] for key in settings}
    return ", ".join(f"{names.get(bare[key], bare[key].replace('_', ' '))} {shown(value)}" for key, value in settings.items())


def replace(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """A variation of ``config``. Keys are dotted (``training.learning_rate``) or bare; values may be text as typed.

    ValueError names the value, what is allowed, and near misses of an unknown key.
    """
    data = config.model_dump()
    for key, value in changes.items():
        section, _, name = _full_name(key, data).rpartition(".")
        fields = data[section] if isinstance(data.get(section), dict) else data if not section else None
        if fields is None or name not in fields or isinstance(fields[name], dict):
            near = difflib.get_close_matches(key, config.flat(), n=3, cutoff=0.6)
            raise ValueError(
                f"there is no setting {key!r}"
                + (f"; did you mean {' or '.join(near)}?" if near else f"; settings are {', '.join(config.flat())}")
            )
        fields[name] = _parse(value, optional=_default(section, name) is None)
    return validated(data)


def _full_name(key: str, data: Mapping[str, Any]) -> str:
    """``learning_rate`` for ``training.learning_rate``: the section may be left out, since no name stands in both."""
    sections = [section for section, fields in data.items() if isinstance(fields, dict) and key in fields]
    return f"{sections[0]}.{key}" if sections else key


def _default(section: str, name: str) -> Any:
    """A field's default; None for those, and only those, that may be left to their slots."""
    owner = RunConfig.model_fields[section].annotation if section else RunConfig
    assert owner is not None
    return owner.model_fields[name].default


def validated(data: Mapping[str, Any]) -> RunConfig:
    """A RunConfig from plain data; ValueError in one line instead of pydantic's several."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise ValueError(explain(error)) from None


def _parse(value: Any, optional: bool) -> Any:
    """Text as typed after ``--set``: [..] gets its meaning, and none where a field may be None; the rest is left to pydantic."""
    if not isinstance(value, str):
        return value
    if optional and value.strip().lower() in {"none", "null", "default"}:
        return None
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def explain(error: ValidationError) -> str:
    """A pydantic error as one line: every offending field with its value and what is allowed."""
    parts = []
    for item in error.errors(include_url=False):
        where = ".".join(str(p) for p in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "is not a setting; remove it or check its spelling"
        shown = "" if item["type"] == "value_error" or isinstance(item["input"], dict) else f" = {item['input']!r}"
        parts.append(
            f"{where}{shown}: {message[:1].lower()}{message[1:]}" if where and shown else f"{where}: {message}" if where else message
        )
    return "; ".join(parts)
