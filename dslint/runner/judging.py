"""The judgement itself, in a process of its own: a command -> the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslint.runner.report import Report

if TYPE_CHECKING:
    from dslint.engine.preflight import Checked
    from dslint.settings import Settings

# Characters of a command line; a list of files may have more, and no launch has so many.
_LONGEST = 100_000
_LIBRARIES = ("deepspeed", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a command with its environment, what the user states, and how to say it.

    ``words`` is what the user has typed, ``argv`` the launch that it is a part of. ``flags`` have the names of
    settings. ``runs``: the launch has happened, and ``environ`` holds what the launcher has set.
    """

    argv: tuple[str, ...]
    words: tuple[str, ...]
    environ: Mapping[str, str]
    flags: Mapping[str, Any] = field(default_factory=dict)
    config: str | None = None
    isolated: bool = False
    project_rules: bool = False
    color: bool = False
    width: int = 100
    quiet: bool = False
    output_format: str = "concise"
    runs: bool = False
    ignore_noqa: bool = False


class UnusableSettings(Exception):  # noqa: N818 - the name says the mistake
    """Settings cannot be used; the message is one line. ``is_usage``: those on the command line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.is_usage = message.startswith("command line: ")


def judge(request: Request, *, scripts: bool) -> Report:
    """Judge the command; without ``scripts`` what has to be interpreted is left out.

    Raises:
        UnusableSettings: the flags or a settings file have a mistake.
    """
    if sum(map(len, request.argv)) > _LONGEST:
        return Report(problems=("the command line is too long to be judged",))
    from dslint.engine.preflight import Preflight

    settings = _settings(request)
    stated = [name for name in _LIBRARIES if f"{name}-version" in request.flags]
    environ = _before(request) if request.runs else request.environ
    preflight = Preflight(request.argv, environ, settings, stated, request.ignore_noqa)
    fail_on = "never" if settings.exit_zero else settings.fail_on
    if not preflight.is_launch:
        return Report(fail_on=fail_on, problems=(_no_launch(request.words),))
    checked = preflight.check(scripts=scripts)
    left = () if scripts else tuple(sorted({plan.script for plan in checked.planned.plans if plan.script is not None}))
    found, files = tuple(checked.result.findings), checked.result.files
    return Report(found, (), files, fail_on, _text(checked, request, settings), left)


def _settings(request: Request) -> Settings:
    from dslint.settings import SettingsError, load_settings

    config = Path(request.config) if request.config is not None else None
    try:
        return load_settings(Path(), request.flags, config, request.isolated, request.environ, request.project_rules)
    except SettingsError as error:
        raise UnusableSettings(str(error)) from None


def _before(request: Request) -> dict[str, str]:
    """The environment that the launcher has found."""
    from dslint.model.launch.launchers.environment import SETS

    own = SETS.get(request.argv[0].rpartition("/")[2], frozenset())
    return {n: text for n, text in request.environ.items() if n not in own and not n.startswith("TORCHELASTIC_")}


def _no_launch(words: Sequence[str]) -> str:
    from dslint.model.launch.started import command_text

    text = command_text(words)
    return f"no launch of a training in `{text if len(text) < 80 else text[:76] + ' ...'}`: nothing is judged"


def _text(checked: Checked, request: Request, settings: Settings) -> str:
    from dslint.report import renderer
    from dslint.report.options import ReportOptions
    from dslint.report.sources import FileSources
    from dslint.report.view import language_for, view_of
    from dslint.translate import translator
    from dslint.translate.findings import translated

    translate = translator(language_for(settings.lang, request.output_format, request.environ))
    options = ReportOptions(request.color, request.width, files=checked.result.files, translate=translate)
    view = view_of(checked.result.findings, request.output_format, settings.min_severity, settings.fail_on)
    found = renderer(request.output_format)(translated(view.shown, translate), FileSources(checked.texts), options)
    if request.quiet:
        return found
    from dslint.planview.describe import views_of
    from dslint.planview.text import render

    plan = render(views_of(checked.planned), options, False)
    return f"{plan}\n{found}" if found else plan
