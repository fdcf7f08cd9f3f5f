"""Everything people read on a page exists in both languages: extracted from the source, compared with the catalogue."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from babel.messages.extract import extract_from_dir, extract_from_file

from nqlab import presets, slots, words
from nqlab.corpus import SOURCES
from nqlab.limits import Limits
from nqlab.words import LOCALE, _, catalogue, several, speak_through

ROOT = Path(__file__).parents[1]
KEYWORDS = {"_": None, "several": (1, 2)}
OTHERS = [language for language in words.LANGUAGES if language != "en"]


@cache
def messages() -> dict[str | tuple[str, ...], str]:
    """Every message of the source, and where it stands: those inside ``_()`` and ``several()``, and names kept in tables."""
    found: dict[str | tuple[str, ...], str] = {}
    for name, line, message, _comments, _context in extract_from_dir(ROOT / "nqlab", keywords=KEYWORDS):
        found[message if isinstance(message, str) else tuple(message)] = f"{name}:{line}"
    for line, message, _comments, _context in extract_from_file("python", ROOT / "app.py", keywords=KEYWORDS):
        found[message] = f"app.py:{line}"
    tables = [entry.title for entries in slots.SLOTS.values() for entry in entries.values()]
    tables += [*presets.ARMS.values(), *(source.title for source in SOURCES.values())]
    tables += [str(field.description) for name, field in Limits.model_fields.items() if name != "teacher"]
    return found | dict.fromkeys(tables, "a table")


@pytest.mark.parametrize("language", OTHERS)
def test_no_message_is_left_untranslated(language: str) -> None:
    known = {m.id if isinstance(m.id, str) else tuple(m.id): m.string for m in catalogue(language)}
    missing = [f"{where}: {message!r}" for message, where in messages().items() if not any(known.get(message) or "")]
    assert not missing, "\n".join(missing)
    unused = [m for m in known if m and m not in messages()]
    assert not unused, f"messages that nothing says any more: {unused}"


@pytest.mark.parametrize("language", OTHERS)
def test_translations_name_the_same_things(language: str) -> None:
    for message in catalogue(language):
        if not message.id:
            continue
        ids = [message.id] if isinstance(message.id, str) else list(message.id)
        texts = [message.string] if isinstance(message.string, str) else list(message.string)
        wanted = set(re.findall(r"{[^}]*}", ids[-1]))
        for text in texts:
            assert set(re.findall(r"{[^}]*}", text)) == wanted, (message.id, text)


def test_messages_are_plain_literals() -> None:
    """An f-string inside ``_()`` would never be found in a catalogue."""
    for path in (ROOT / "nqlab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_":
                assert not isinstance(node.args[0], ast.JoinedStr), f"{path}:{node.lineno}"
            if isinstance(node, ast.JoinedStr):  # what is inside one is not found either
                inside = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "_"]
                assert not any(isinstance(n.args[0], ast.Constant) for n in inside), f"{path}:{node.lineno}"


def test_who_reads_decides_the_language() -> None:
    try:
        speak_through(lambda: "zh_TW")
        assert _("Start") == "開始"
        assert several("{n} prediction so far.", "{n} predictions so far.", 3) != "{n} predictions so far."
        speak_through(lambda: "en")
        assert _("Start") == "Start"
        assert several("{n} prediction so far.", "{n} predictions so far.", 1) == "{n} prediction so far."
    finally:
        speak_through(lambda: "en")
    assert _("") == ""


def test_an_unknown_language_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="choose one of en, zh_TW"):
        catalogue("tlh")
    assert {path.stem for path in LOCALE.glob("*.po")} == set(OTHERS)
