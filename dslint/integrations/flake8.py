"""The flake8 plugin: the script rules on the files that flake8 reads.

flake8 loads this module on every start, even for ``--version``, so nothing of dslint is imported at its top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.settings import Settings

PREFIX = "DSL"
VERSION = "0.1.0"  # not imported, see above; a test compares it with the package


class Plugin:
    """One instance a file, as flake8 asks for it."""

    name = "dslint"
    version = VERSION
    show_info = False

    def __init__(self, tree: object, filename: str, lines: list[str]) -> None:  # noqa: ARG002 - `tree` picks the API
        self.filename = filename
        self.lines = lines

    @classmethod
    def add_options(cls, option_manager: Any) -> None:
        """Register ``--dslint-info``."""
        option_manager.add_option(
            "--dslint-info",
            action="store_true",
            default=False,
            parse_from_config=True,
            help="Report dslint findings of severity info too",
        )

    @classmethod
    def parse_options(cls, options: Any) -> None:
        """Keep the settings, and say so when a prefix meant for another plugin silences this one."""
        cls.show_info = bool(getattr(options, "dslint_info", False))
        prefix = silencing_prefix(options)
        if prefix and _is_main_process():
            sys.stderr.write(
                f"dslint: `{prefix}` in flake8's ignore list also silences all {PREFIX} codes; "
                f"add `extend-select = {PREFIX}` to see them, or ignore `{PREFIX}` to hide this line\n"
            )

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        """``(line, 0-based column, text, plugin)`` of every finding; flake8 adds 1 to the column."""
        try:
            yield from self._findings()
        except Exception as error:
            # An exception would end flake8 itself, with the findings of all other plugins.
            yield 1, 0, f"DSL901 dslint failed on this file: {type(error).__name__}: {error}", type(self)

    def _findings(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        text = "".join(self.lines)
        settings = _settings(os.path.dirname(os.path.abspath(self.filename)))
        if not _is_worth_a_look(text, settings):
            return
        from dslint.engine.run import check_text
        from dslint.suppress.files import per_file_ignores

        found = check_text(self.filename, text, "script", settings)
        for finding in map(settings.adjusted, _not_suppressed(self.filename, text, found)):
            if per_file_ignores(settings, finding):
                continue
            if finding.severity.value != "info" or self.show_info:
                region = finding.location.region
                message = " ".join(finding.message.split())
                yield region.line, region.column - 1, f"{finding.code} {message}", type(self)


def silencing_prefix(options: Any) -> str:
    """The entry of flake8's ignore lists that hides all codes of dslint without naming it, else empty.

    flake8 compares prefixes: ``D``, meant for the docstring codes, also hides every code of dslint. The longer
    prefix wins, so a selection that names dslint keeps it visible; a selection without it hides it anyway.
    """
    ignored = [*_codes(options, "ignore"), *_codes(options, "extend_ignore")]
    prefix = max((code for code in ignored if PREFIX.startswith(code)), key=len, default="")
    select, extended = _codes(options, "select"), _codes(options, "extend_select")
    named = [code for code in (*select, *extended) if code.startswith(PREFIX) or PREFIX.startswith(code)]
    if named and not select:
        named.append(PREFIX)  # the default selection names every plugin
    longest = max(map(len, named), default=0)
    if prefix == PREFIX or longest > len(prefix) or (select and not named):
        return ""
    return prefix


def _codes(options: Any, name: str) -> list[str]:
    return [code for given in getattr(options, name, None) or () if (code := str(given).strip())]


def _is_main_process() -> bool:
    """flake8 parses its options again in each worker that it spawns."""
    from multiprocessing import parent_process

    return parent_process() is None


@cache
def _settings(folder: str) -> Settings:
    """Those of the project that hold in flake8, too: its own names, which rules are on, severities, ignored files.

    Raises:
        SettingsError: they cannot be used.
    """
    from pathlib import Path

    from dslint.settings import load_settings

    return load_settings(Path(folder), {})


def _is_worth_a_look(text: str, settings: Settings) -> bool:
    """Whether some script rule finds all its words: a search over the bytes, before any parser is imported."""
    from dslint.engine.surroundings import vocabulary_of
    from dslint.rules.index import RULES
    from dslint.rules.markers import rules_by_marker

    raw = text.encode("utf-8", "surrogatepass")
    enabled = frozenset(rule.code for rule in RULES if settings.enabled(rule.code))
    return bool(rules_by_marker(raw, enabled, vocabulary_of(settings)))


def _not_suppressed(path: str, text: str, findings: list[Finding]) -> list[Finding]:
    """The findings without those that a ``# dslint: ignore`` suppresses; ``# noqa`` is flake8's business."""
    if not findings or "dslint" not in text:
        return findings
    from dslint.core.source import SourceFile
    from dslint.parse.python import comment_spans
    from dslint.suppress.comments import Suppressions
    from dslint.suppress.logical import python_statements

    comments = [span for span in comment_spans(text) if "dslint" in text[span.start : span.end]]
    return Suppressions.from_comments(SourceFile(path, text), comments, python_statements(text)).apply(findings)[0]
