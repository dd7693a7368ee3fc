"""What dslint says, in the language of its reader: messages, hints, rule pages and the words around them.

dslint thinks in English: rules make English texts, and only what is printed is translated. ``zh_CN.po`` holds the
translations, one entry a text or template (``{0}`` stands for whatever a rule puts there); ``scripts/
generate_translations.py`` compiles it into what is read here. A text without a translation stays English.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

LANGUAGES = ("en", "zh")
# In the order in which gettext asks them; the first that is set decides.
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


class Translator(Protocol):
    """Turns an English text of dslint into that of a language."""

    def __call__(self, text: str) -> str:
        """Return the text in the language; an unknown one as it is."""
        ...


def english(text: str) -> str:
    """Return the text as the rules made it."""
    return text


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language of ``LANGUAGE`` and ``LANG`` and its relatives; English where dslint does not speak it."""
    locale = next((environ[name] for name in _VARIABLES if environ.get(name)), "")
    if locale in ("", "C", "POSIX") or locale.startswith("C."):
        return "en"
    # LANGUAGE is a list in order of preference, and holds only where the locale is one of a language.
    for name in (*environ.get("LANGUAGE", "").split(":"), locale):
        spoken = name.partition("_")[0].partition(".")[0].lower()
        if spoken in LANGUAGES:
            return spoken
    return "en"


def translator(language: str) -> Translator:
    """Return what translates into one of ``LANGUAGES``; its catalogue is read when it is first asked."""
    if language == "en":
        return english
    from dslint.translate.catalogue import Catalogue

    return Catalogue.read(language)
