"""Runs as a table: searched as text and by field, filtered, grouped by any setting.

A search is words with blanks between them; a run is found when all of them fit. ``fox`` fits a run that has it in any
field; ``learning_rate=0.01``, ``seed!=3`` and ``val_loss<2.1`` compare one field; ``"a b"`` is one word, taken as text.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from nqlab.analysis.figures import title_of
from nqlab.analysis.standing import state_word
from nqlab.config import shown
from nqlab.runs.store import Run
from nqlab.words import _

Row = dict[str, Any]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TERM = re.compile(r"([A-Za-z_.]+)(!=|<=|>=|=|<|>)(.*)")
_WORD = re.compile(r'"([^"]*)"|(\S+)')
ENDED = ("finished", "did not learn")


def rows(runs: Iterable[Run]) -> list[Row]:
    """A row a run: its summary, and its settings under their dotted names; a broken folder has no settings."""
    found = []
    for run in runs:
        row = run.summary()
        found.append({"note": "", "tags": []} | row | (run.config.flat() if row["status"] != "broken" else {}))
    return found


# --- search and filters


def search(found: Sequence[Row], text: str) -> list[Row]:
    """The rows that fit every word of a search. ValueError for a field that no run has, with near misses."""
    terms = [(quoted, word) for quoted, word in _WORD.findall(text) if quoted or word]
    tests = [_has(quoted) if quoted else _test(word, found) for quoted, word in terms]
    return [row for row in found if all(test(row) for test in tests)]


def _test(word: str, found: Sequence[Row]) -> Callable[[Row], bool]:
    term = _TERM.fullmatch(word)
    if term is None:
        return _has(word)
    key, sign, value = term.groups()
    name = full_name(key, found)
    return lambda row: name in row and _compares(row[name], sign, value)


def _has(word: str) -> Callable[[Row], bool]:
    needle = word.casefold()
    return lambda row: any(needle in part for part in _texts(row))


def _texts(row: Row) -> Iterable[str]:
    """Everything of a row as text: values as they are shown, the variant also by its title."""
    for key, value in row.items():
        for one in value if isinstance(value, list) else [value]:
            yield shown(one).casefold()
        if key == "arm":
            yield title_of(value).casefold()


def full_name(key: str, found: Sequence[Row]) -> str:
    """A field's name in the rows: ``training.learning_rate`` for ``learning_rate``, ``tags`` for ``tag``. ValueError lists near misses."""
    names = list(dict.fromkeys(name for row in found for name in row))
    aliases = {"tag": "tags", "variant": "arm", "text": "corpus", "state": "status"}
    wanted = aliases.get(key, key)
    for name in (n for n in names if n == wanted or n.rpartition(".")[2] == wanted):
        return name
    if not found:
        return wanted
    near = difflib.get_close_matches(wanted, [*names, *(n.rpartition(".")[2] for n in names)], n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else 'put it in "quotes" to search for it as text'
    raise ValueError(f"runs have no field {key!r}; {hint}")


def _compares(value: Any, sign: str, wanted: str) -> bool:
    """Numbers as numbers, texts without regard to case, a list by what is in it; nothing compares with an absent value."""
    if isinstance(value, list):
        held = wanted.casefold() in [str(one).casefold() for one in value]
        return held if sign == "=" else not held if sign == "!=" else False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return OPERATORS[sign](float(value), float(wanted))
        except ValueError:
            return sign == "!="
    text = "none" if value is None else str(value).casefold()
    return sign in ("=", "!=") and OPERATORS[sign](text, wanted.casefold())


def filtered(found: Sequence[Row], wanted: Mapping[str, Collection[Any]]) -> list[Row]:
    """The rows that have, in each field, one of the values wanted there; an empty choice leaves all."""

    def fits(row: Row, key: str, values: Collection[Any]) -> bool:
        held = row.get(key)
        return any(one in values for one in (held if isinstance(held, list) else [held]))

    return [row for row in found if all(fits(row, key, values) for key, values in wanted.items() if values)]


def values_of(found: Sequence[Row], key: str) -> list[Any]:
    """What stands in a field, each once, in order."""
    parts = [value if isinstance(value, list) else [value] for row in found if (value := row.get(key)) is not None]
    return sorted({one for part in parts for one in part}, key=str)


# --- groups


def fields(found: Sequence[Row]) -> list[str]:
    """What runs can be grouped by: variant, tags, and the settings in which they differ."""
    settings = [key for key in dict.fromkeys(k for row in found for k in row) if "." in key or key in ("corpus", "seed")]
    return ["arm", "tags", *(key for key in settings if len({shown(row[key]) for row in found if key in row}) > 1)]


def grouped(found: Sequence[Row], key: str) -> list[Row]:
    """A row a value of a field: ``runs``, how many ``ended``, and the ``mean`` and ``best`` final validation loss of those that
    ended. A run that diverged or has not come to its last step has no final loss; one with two tags counts in both."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(found, key=lambda r: _order(r.get(key))):
        held = row.get(key)
        for one in (held or ["–"]) if isinstance(held, list) else [held]:
            groups.setdefault(title_of(one) if key == "arm" and one else shown(one), []).append(row)
    return [{"value": value, **_numbers(members)} for value, members in groups.items()]


def _order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float))
    return (not number, float(value) if number else 0.0, str(value))


def _numbers(members: Sequence[Row]) -> Row:
    ended = [row["val_loss"] for row in members if row["status"] in ENDED]
    return {"runs": len(members), "ended": len(ended), "mean": fmean(ended) if ended else None, "best": min(ended, default=None)}


# --- as people read it


def columns() -> dict[str, str]:
    """The fields that a list shows, with their headings."""
    return {
        "name": _("name"),
        "status": _("state"),
        "arm": _("variant"),
        "learning_rate": _("learning rate"),
        "weight_decay": _("weight decay"),
        "seed": _("seed"),
        "step": _("step"),
        "val_loss": _("val. loss"),
        "corpus": _("text"),
        "created": _("started (UTC)"),
        "tags": _("tags"),
        "note": _("note"),
    }


def table(found: Sequence[Row]) -> pd.DataFrame:
    """The rows as a list shows them."""
    read = [
        row
        | {
            "arm": title_of(row["arm"]) if "arm" in row else None,
            "status": state_word(row["status"]),
            "created": str(row.get("created") or "")[:16].replace("T", " "),
        }
        for row in found
    ]
    frame = pd.DataFrame(read)
    return frame.reindex(columns=list(columns())).rename(columns=columns())


def group_table(found: Sequence[Row], key: str) -> pd.DataFrame:
    """The groups as a list shows them."""
    names = {"value": key.rpartition(".")[2].replace("_", " "), "runs": _("runs"), "ended": _("ended")}
    names |= {"mean": _("mean val. loss"), "best": _("best val. loss")}
    return pd.DataFrame(grouped(found, key)).rename(columns=names)
