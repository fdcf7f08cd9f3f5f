"""What people read, in their language: ``_("...")`` through gettext, with the catalogues in ``nqlab/locale``.

English is the language of the source. Which other one applies is asked anew at every call, because one server speaks
to several viewers at once: whoever serves them sets :func:`speak_through`; elsewhere (command line, notebooks) it is
English. Catalogues are kept as text (``.po``) and compiled when first used.
"""

from __future__ import annotations

import gettext
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

LOCALE = Path(__file__).parent / "locale"
LANGUAGES = {"en": "English", "zh_TW": "繁體中文"}
_chosen: list[Callable[[], str]] = [lambda: "en"]
_fixed: ContextVar[str | None] = ContextVar("language", default=None)


def speak_through(language: Callable[[], str]) -> None:
    """From now on ``language()`` says which of :data:`LANGUAGES` a text is wanted in."""
    _chosen[0] = language


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within it, texts are in this language, whoever asks: for what is made later, where nobody can be asked (a download)."""
    token = _fixed.set(language)
    try:
        yield
    finally:
        _fixed.reset(token)


def _language() -> str:
    return _fixed.get() or _chosen[0]()


def catalogue(language: str) -> Catalog:
    """The catalogue of a language as it is kept; ValueError lists the languages."""
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r} is unknown; choose one of {', '.join(LANGUAGES)}")
    with (LOCALE / f"{language}.po").open("rb") as file:
        return read_po(file, locale=language)


@cache
def _translations(language: str) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    write_mo(compiled, catalogue(language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def _(message: str) -> str:
    """The message in the language of whoever reads it; an unknown one stays English."""
    return _translations(_language()).gettext(message) if message else ""


def several(one: str, many: str, n: int) -> str:
    """The form that fits ``n`` things, in the reader's language."""
    return _translations(_language()).ngettext(one, many, n)
