"""The verdicts of a study: every arm against the baseline, pair by pair, at the same settings and at equal tuning.

Two runs are a pair when they differ in their arm and in nothing else: same seed, so same batches and same start
where they share weights; same settings; same text. An arm's own settings (a bottleneck width) are named in its row.
What differs in more, has not made all its steps, or has other parameters without saying so, is refused, with the reason.

Two budgets. *Same settings*: both members of a pair at the settings named. *Equal tuning*: each arm at the best of
the settings it shares with the baseline, chosen by the mean over seeds on the even validation windows and judged on the
odd ones, so that choosing does not flatter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from nqlab import presets, slots
from nqlab.analysis.differences import difference, noise_floor
from nqlab.analysis.figures import title_of
from nqlab.analysis.results import Result
from nqlab.config import RunConfig, difference_line, setting_words
from nqlab.model.budget import surplus
from nqlab.words import _, several

Row = dict[str, Any]
Fields = tuple[tuple[str, Any], ...]
Settings = dict[Fields, dict[int, Result]]  # a setting -> seed -> run
Pair = tuple[Fields, Fields, list[Result], list[Result]]  # settings and runs of arm and baseline, seed by seed

SAME, TUNED = "same settings", "equal tuning"
TUNABLE = ("training.learning_rate", "training.weight_decay")
OWN = frozenset(f"model.{name}" for entry in slots.QUERY.values() for name in entry.options)
QUIET = frozenset(f"training.{name}_interval" for name in ("log", "eval", "checkpoint", "sample")) | {
    "training.sample_prompt",
    "training.sample_length",
}  # they move no loss
UNEQUAL_PERCENT = 1.0  # of the blocks' parameters


def verdicts(
    results: Iterable[Result],
    baseline: str = "linear",
    *,
    tuned: Collection[str] = TUNABLE,
    declared: Collection[str] = (),
    at: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Every arm against ``baseline``, as plain rows: equal tuning first, then each setting, then what is refused.

    Args:
        results: Runs, of any sizes and texts; each size and text is judged on its own.
        baseline: The arm to compare with.
        tuned: Dotted fields that are settings, to be chosen among under equal tuning.
        declared: Further fields in which the arms are meant to differ (a bottleneck width that changes the size).
        at: Settings fixed beforehand (dotted field -> value): only there are the arms compared at the same settings, and
            intervals are corrected for the arms alone instead of for arms and settings. Equal tuning still sees them all.

    A row has ``size``, ``arm``, ``baseline``, ``budget``, ``settings``, ``baseline_settings``, ``tried`` (settings of
    arm and baseline), ``mean``, ``low``, ``high``, ``n``, ``verdict``, ``p``, ``detectable``, ``more_seeds``,
    ``corrected_for``, ``noise_floor``, ``inside_noise``, ``survived`` (arm, of, baseline, of), ``parameters``,
    ``parameters_percent``, ``flops_percent``, ``seconds_ratio``, ``losses`` (arm, baseline), ``seeds`` and
    ``differences`` (of each pair) and ``reason``. Losses and differences are in nats per character. No number is NaN: what
    does not exist is None.
    """
    everything = list(results)
    groups = sizes(everything, tuned)
    rows: list[Row] = []
    for name, members in groups.items():
        rows += _Group(name, members, baseline, tuned, declared).rows(at or {}, everything)
    return sorted(rows, key=lambda row: row["verdict"] == "refused")


def sizes(results: Iterable[Result], tuned: Collection[str] = TUNABLE) -> dict[str, list[Result]]:
    """Runs that may be compared with each other, by a short name: one shape, one text, one length of training."""
    groups: dict[Fields, list[Result]] = defaultdict(list)
    for result in results:
        groups[_rest(result, tuned)].append(result)
    names = _group_names(groups)
    return {names[rest]: members for rest, members in groups.items()}


def by_field(results: Iterable[Result], field: str) -> list[Row]:
    """The values of one dotted field against its first, pair by pair, everything else equal, the arm included.

    Rows have ``size``, ``arm``, ``field``, ``value``, ``against``, and the numbers of :func:`verdicts`.
    """
    groups: dict[Fields, dict[Any, dict[int, Result]]] = defaultdict(lambda: defaultdict(dict))
    for result in filter(_ended, results):
        flat = fields_of(result)
        rest = tuple((k, v) for k, v in flat.items() if k not in ("seed", field))
        groups[rest][flat[field]][result.config.seed] = result
    found = []
    for values in groups.values():
        (first, theirs), *others = values.items()
        for value, mine in others:
            seeds = sorted(mine.keys() & theirs.keys())
            if seeds:
                found.append((first, value, [mine[s] for s in seeds], [theirs[s] for s in seeds]))
    return [_field_row(field, *pair, family=len(found)) for pair in found]


def _field_row(field: str, first: Any, value: Any, mine: Sequence[Result], theirs: Sequence[Result], family: int) -> Row:
    gap = difference([_counted(a) - _counted(b) for a, b in zip(mine, theirs)], family)
    floor = noise_floor([_counted(b) for b in theirs])
    return {
        "size": size_of(mine[0].config), "arm": mine[0].arm, "field": field, "value": value, "against": first,
        "mean": gap.mean, "low": gap.low, "high": gap.high, "n": gap.n, "verdict": gap.verdict, "p": gap.p,
        "detectable": gap.detectable, "more_seeds": gap.more_seeds, "corrected_for": gap.corrected_for, "noise_floor": floor,
        "inside_noise": floor is not None and abs(gap.mean) < floor, "losses": [fmean(map(_counted, mine)), fmean(map(_counted, theirs))],
    }  # fmt: skip


# --- what is the same, and what may differ


def fields_of(result: Result) -> dict[str, Any]:
    """The fields that can move a loss; a final rate that is the usual tenth of the peak is no field of its own."""
    flat: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in result.flat.items() if k not in QUIET}
    if flat["training.min_lr"] == flat["training.learning_rate"] / 10:
        flat["training.min_lr"] = None
    return flat


def _rest(result: Result, tuned: Collection[str]) -> Fields:
    """What must be equal in a whole comparison: everything but arm, settings and seed."""
    leave = {"seed", "model.query", *OWN, *tuned}
    if result.arm in presets.MLP_CONTROLS:
        standard = _standard_hidden(result.config)
        return tuple((k, standard if k == "model.ffn_hidden" else v) for k, v in fields_of(result).items() if k not in leave)
    return tuple((k, v) for k, v in fields_of(result).items() if k not in leave)


def _standard_hidden(config: RunConfig) -> Any:
    """The hidden width that its feed-forward slot has by default."""
    return slots.entry("feedforward", config.model.feedforward).options["ffn_hidden"](config.model.n_embd)


def _setting(result: Result, tuned: Collection[str]) -> Fields:
    """What was set for this run: the tuned fields, and its arm's own ones where they are not the usual."""
    flat = fields_of(result)
    own = [
        (f"model.{name}", flat[f"model.{name}"])
        for name, default in _read(result).items()
        if flat[f"model.{name}"] != default(result.config.model.n_embd)
    ]
    return tuple((key, flat[key]) for key in tuned) + tuple(own)


def _read(result: Result) -> dict[str, slots.Default]:
    """The fields of OWN that this run reads, with their defaults: a nonlinear key has a bottleneck, whatever the arm."""
    model = result.config.model
    options = [slots.entry(slot, getattr(model, slot)).options for slot in ("query", "key", "value")]
    return {name: default for part in options for name, default in part.items() if f"model.{name}" in OWN}


def _shared(setting: Fields) -> Fields:
    """The part of a setting that every arm has."""
    return tuple((key, value) for key, value in setting if key not in OWN)


def _group_names(groups: Mapping[Fields, Sequence[Result]]) -> dict[Fields, str]:
    """A short name a size: the preset's where its shape is one, and what else tells the groups apart."""
    varying = {key for rest in groups for key, value in rest if any(dict(other).get(key) != value for other in groups)}
    names = {}
    for rest, members in groups.items():
        name = size_of(members[0].config)
        usual = {"model.ffn_hidden": _standard_hidden(members[0].config)}  # what follows from the shape needs no mention
        extra = [f"{k.split('.')[-1]} {v}" for k, v in rest if k in varying and k not in _SHAPE and usual.get(k) != v]
        names[rest] = ", ".join([name, *extra])
    return names


_SHAPE = ("model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "training.batch_size")


def size_of(config: RunConfig) -> str:
    """The preset with this shape and number of steps, else layers x width."""
    mine = config.flat()
    for name, make in presets.PRESETS.items():
        theirs = make().flat()
        if all(mine[key] == theirs[key] for key in (*_SHAPE, "training.steps")):
            return name
    return f"{config.model.n_layer}x{config.model.n_embd}, {config.training.steps} steps"


# --- one size


class _Group:
    """Runs of one size on one text, which differ in arm, settings and seed alone."""

    def __init__(self, name: str, results: Sequence[Result], baseline: str, tuned: Collection[str], declared: Collection[str]) -> None:
        self.name, self.baseline, self.declared = name, baseline, declared
        self.arms: dict[str, Settings] = defaultdict(lambda: defaultdict(dict))
        self.waiting: dict[str, int] = defaultdict(int)
        for result in results:
            if _ended(result):
                self.arms[result.arm][_setting(result, tuned)].setdefault(result.config.seed, result)
            else:
                self.waiting[result.arm] += 1

    def rows(self, at: Mapping[str, Any], everything: Sequence[Result]) -> list[Row]:
        """A row for every arm at least; refused ones come last."""
        others = [arm for arm in dict.fromkeys([*self.arms, *self.waiting]) if arm != self.baseline]
        refusals = {arm: reason for arm in others if (reason := self._nothing(arm, everything))}
        sorted_out = {arm: self._pairs(arm) for arm in others if arm not in refusals}
        pairs = {arm: [p for p in fair if at.items() <= dict(p[0]).items()] for arm, (fair, _unfair) in sorted_out.items()}
        tuned = [(arm, chosen) for arm, (fair, _unfair) in sorted_out.items() if (chosen := self._choose(fair)) is not None]
        rows = [self._tuned_row(arm, *chosen, family=len(tuned)) for arm, chosen in tuned]
        family = sum(map(len, pairs.values()))
        for arm, fair in pairs.items():
            rows += [self._same_row(arm, *pair, family=family) for pair in fair]
        rows += [self._refused(arm, reason) for arm, (_fair, unfair) in sorted_out.items() for reason in unfair]
        for arm, (fair, unfair) in sorted_out.items():
            if not pairs[arm] and (fair or not unfair):
                refusals[arm] = self._no_pair(arm, fair, at)
        return rows + [self._refused(arm, reason) for arm, reason in refusals.items()]

    def _nothing(self, arm: str, everything: Sequence[Result]) -> str | None:
        """Why there is nothing to pair, or None."""
        if arm not in self.arms:
            return _("none of its runs has made all its steps; only annealed runs are ranked")
        if self.baseline in self.arms:
            return None
        if self.waiting[self.baseline]:
            return _("none of the baseline's runs has made all its steps; only annealed runs are ranked")
        mine = next(iter(self._runs(arm)))
        lines = [difference_line(r.config, mine.config) for r in everything if r.arm == self.baseline]
        if not lines:
            return _("no run of the baseline {baseline} is here to pair it with").format(baseline=title_of(self.baseline))
        return _("it differs from the baseline in more than the query: {fields}").format(fields=min(lines, key=len))

    def _no_pair(self, arm: str, fair: Sequence[Pair], at: Mapping[str, Any]) -> str:
        """Why an arm that has ended runs, as the baseline has, has no pair."""
        if fair:
            tried = "; ".join(dict.fromkeys(setting_words(dict(a)) for a, *_rest in fair))
            return _("it has no pair at {settings}; it has pairs at {tried}").format(settings=setting_words(at), tried=tried)
        seeds = [sorted({r.config.seed for r in self._runs(a)}) for a in (arm, self.baseline)]
        text = _(
            "it shares no setting and seed with the baseline: its seeds are {mine}, the baseline's {theirs}; "
            "its settings {my_settings}, the baseline's {their_settings}"
        )
        return text.format(
            mine=", ".join(map(str, seeds[0])), theirs=", ".join(map(str, seeds[1])),
            my_settings=_list(self.arms[arm]), their_settings=_list(self.arms[self.baseline]),
        )  # fmt: skip

    # --- pairs

    def _pairs(self, arm: str) -> tuple[list[Pair], list[str]]:
        """The settings at which arm and baseline have runs of the same seeds; and why some may not be ranked.

        Shared settings must be equal, and so must what both arms read of their own (a width, against an arm that has
        one too). What only one of them reads is free: every such setting is a comparison.
        """
        fair: list[Pair] = []
        unfair: dict[str, None] = {}
        for a, mine in self.arms[arm].items():
            for b, theirs in self.arms[self.baseline].items():
                seeds = sorted(mine.keys() & theirs.keys())
                if not seeds or _shared(a) != _shared(b) or not _alike(a, b, mine[seeds[0]], theirs[seeds[0]]):
                    continue
                pair = (a, b, [mine[s] for s in seeds], [theirs[s] for s in seeds])
                if reason := self._unequal(pair):
                    unfair[reason] = None
                else:
                    fair.append(pair)
        return sorted(fair, key=lambda pair: [_order(v) for _key, v in (*pair[0], *pair[1])]), list(unfair)

    def _unequal(self, pair: Pair) -> str | None:
        """Why the sizes forbid a ranking, or None. An arm in its usual form has the size that it is meant to have;
        a width that somebody set and nobody declared may be where a gain comes from."""
        a, b, (mine, *_more), (theirs, *_others) = pair
        extra = surplus(mine.config.model, theirs.config.model)
        if ({key for key, _value in (*a, *b)} & (OWN - set(self.declared))) and abs(extra.percent) > UNEQUAL_PERCENT:
            text = _("it has {surplus} more parameters than the baseline, and nobody declared that; match them, or declare the width")
            return text.format(surplus=extra)
        return None

    def _choose(self, fair: Sequence[Pair]) -> tuple[Fields, Fields, list[Result], list[Result], tuple[int, int]] | None:
        """The best setting of each, among those that both tried, over the seeds that all of these have."""
        mine = {a: {r.config.seed: r for r in runs} for a, _b, runs, _theirs in fair}
        theirs = {b: {r.config.seed: r for r in runs} for _a, b, _mine, runs in fair}
        every = [set(runs) for runs in [*mine.values(), *theirs.values()]]
        seeds = sorted(set.intersection(*every)) if every else []
        if len({_shared(a) for a in mine}) < 2 or not seeds:
            return None

        def best(settings: Settings) -> Fields:
            return min(settings, key=lambda s: fmean(_half(settings[s][seed], 0) for seed in seeds))

        a, b = best(mine), best(theirs)
        return a, b, [mine[a][s] for s in seeds], [theirs[b][s] for s in seeds], (len(mine), len(theirs))

    # --- rows

    def _same_row(self, arm: str, a: Fields, b: Fields, mine: Sequence[Result], theirs: Sequence[Result], family: int) -> Row:
        return self._row(arm, SAME, a, b, (1, 1), mine, theirs, _counted, family)

    def _tuned_row(
        self, arm: str, a: Fields, b: Fields, mine: Sequence[Result], theirs: Sequence[Result], tried: tuple[int, int], family: int
    ) -> Row:
        return self._row(arm, TUNED, a, b, tried, mine, theirs, lambda r: _half(r, 1), family)

    def _row(
        self, arm: str, budget: str, setting: Fields, base_setting: Fields, tried: tuple[int, int],
        mine: Sequence[Result], theirs: Sequence[Result], loss: Callable[[Result], float], family: int,
    ) -> Row:  # fmt: skip
        gaps = [loss(a) - loss(b) for a, b in zip(mine, theirs)]
        found = difference(gaps, family)
        floor = noise_floor([loss(b) for b in theirs])
        row = self._head(arm, budget) | {
            "mean": found.mean, "low": found.low, "high": found.high, "n": found.n, "verdict": found.verdict, "p": found.p,
            "detectable": found.detectable, "more_seeds": found.more_seeds, "corrected_for": found.corrected_for,
            "settings": dict(setting), "baseline_settings": dict(base_setting), "tried": list(tried),
            "noise_floor": floor, "inside_noise": floor is not None and abs(found.mean) < floor,
            "survived": [_learnt(mine), len(mine), _learnt(theirs), len(theirs)],
            "losses": [fmean(map(loss, mine)), fmean(map(loss, theirs))],
            "seeds": [r.config.seed for r in mine], "differences": gaps,
            "reason": several("{n} run is not finished and left out", "{n} runs are not finished and left out", left).format(n=left)
            if (left := self.waiting[arm] + self.waiting[self.baseline])
            else None,
        }  # fmt: skip
        return row | self._cost(arm, mine[0], theirs[0])

    def _cost(self, arm: str, mine: Result, theirs: Result) -> Row:
        """What the arm costs more: learned numbers, matrix FLOPs in percent, processor time of a step as a ratio of
        medians over all runs of this size (with the same own settings), since it does not depend on rate or decay."""
        sized = [r for runs in self.arms[arm].values() for r in runs.values() if r.parameters == mine.parameters]
        times = [[r.step_s for r in group if r.step_s is not None] for group in (sized, self._runs(self.baseline))]
        return {
            "parameters": mine.parameters - theirs.parameters,
            "parameters_percent": surplus(mine.config.model, theirs.config.model).percent,
            "flops_percent": 100 * (mine.step_flops / theirs.step_flops - 1),
            "seconds_ratio": median(times[0]) / median(times[1]) if all(times) else None,
        }

    def _runs(self, arm: str) -> list[Result]:
        return [r for runs in self.arms[arm].values() for r in runs.values()]

    def _refused(self, arm: str, reason: str) -> Row:
        return refused(self.name, arm, self.baseline, reason)

    def _head(self, arm: str, budget: str) -> Row:
        return {"size": self.name, "arm": arm, "baseline": self.baseline, "budget": budget}


def refused(size: str, arm: str, baseline: str, reason: str) -> Row:
    """A row that ranks nothing and says why."""
    empty = ["mean", "low", "high", "p", "detectable", "more_seeds", "noise_floor", "inside_noise", "losses", "survived", "tried"]
    empty += ["seeds", "differences"]
    row: Row = {"size": size, "arm": arm, "baseline": baseline, "budget": "none", "settings": {}, "baseline_settings": {}}
    row |= dict.fromkeys(empty) | {"n": 0, "corrected_for": 0, "verdict": "refused", "reason": reason}
    return row | dict.fromkeys(("parameters", "parameters_percent", "flops_percent", "seconds_ratio"))


def _alike(a: Fields, b: Fields, mine: Result, theirs: Result) -> bool:
    """Whether own settings that both arms read are the same: both the arm's usual one, or equal."""
    read = [set(_read(r)) for r in (mine, theirs)]
    usual_a, usual_b = dict(a), dict(b)
    flats = mine.flat, theirs.flat
    return all(
        flats[0][key] == flats[1][key] or (key not in usual_a and key not in usual_b)
        for key in (f"model.{name}" for name in read[0] & read[1])
    )


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then text."""
    number = isinstance(value, (int, float))
    return (not number, float(value) if number else 0.0, str(value))


def _list(settings: Iterable[Fields]) -> str:
    return _(" or ").join(f"({setting_words(dict(s))})" for s in settings)


def _ended(result: Result) -> bool:
    """Annealed to its last step, or diverged on the way."""
    return result.outcome == "diverged" or (result.outcome != "unfinished" and result.step >= result.config.training.steps)


def _counted(result: Result) -> float:
    loss = result.counted_loss
    assert loss is not None
    return loss


def _half(result: Result, half: int) -> float:
    loss = result.counted_half(half)
    assert loss is not None
    return loss


def _learnt(runs: Sequence[Result]) -> int:
    return sum(r.outcome == "finished" for r in runs)
