"""``dslint check``: settings, then findings or fixes, then the report.

Exit codes: 0 nothing at or above the threshold, 1 findings, 2 usage, settings or internal error.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslint.core.commandline import say
from dslint.progressbar import shown_progress

if TYPE_CHECKING:
    from dslint.engine.run import Result
    from dslint.engine.standard_input import StandardInput
    from dslint.settings import Settings
    from dslint.translate import Translator

OK, FINDINGS, TROUBLE = 0, 1, 2
# Flags that say what to do with this run; the others are settings.
_ACTIONS = frozenset(
    {"paths", "diff", "fix_only", "stdin_filename", "output_file", "statistics", "color", "quiet", "verbose", "config",
     "isolated", "show_files", "show_settings", "ignore_noqa", "profile", "project_rules", "write_baseline", "add_noqa",
     "reason", "exit_non_zero_on_fix", "watch"}
)  # fmt: skip

# What --watch does not do again and again.
_NOT_WATCHED = ("fix", "fix_only", "diff", "add_noqa", "write_baseline", "output_file", "profile")


def check(args: Namespace, arguments: Sequence[str] = ()) -> int:
    """``dslint check``: settings, then findings or fixes, then the report. ``arguments``: the words of ``args``."""
    from dslint.settings import SettingsError, load_settings

    flags = vars(args)
    paths = list(args.paths) or (["-"] if "stdin_filename" in args else ["."])
    overrides = {name.replace("_", "-"): value for name, value in flags.items() if name not in _ACTIONS}
    try:
        _check_usage(paths, flags)
        config = Path(args.config) if "config" in args else None
        run_rules = bool(flags.get("project_rules"))
        settings = load_settings(
            start_of(paths, flags), overrides, config, flags.get("isolated", False), run_rules=run_rules
        )
        if flags.get("statistics"):
            _check_statistics(_format(settings, flags))
    except (SettingsError, _UsageError) as error:
        say(str(error))
        return TROUBLE
    if settings.rules and not settings.rule_files and not flags.get("quiet"):
        say(f"rules of the project are not loaded ({', '.join(settings.rules)}): --project-rules runs their code")
    if flags.get("verbose"):
        say(f"settings: {settings.source or 'built-in'}")
    if "show_settings" in args:
        sys.stdout.write(settings.describe())
        return OK
    if flags.get("watch"):
        from dslint.watch_command import watch

        return watch(paths, settings, arguments)
    given = None
    if paths == ["-"]:
        from dslint.engine.standard_input import StandardInput

        given = StandardInput.read(sys.stdin.buffer if sys.stdin else None, flags.get("stdin_filename"))
        paths = [given.name]
    texts = {given.name: given.text} if given else {}
    if "show_files" in args:
        from dslint.engine.run import list_files

        sys.stdout.writelines(f"{path}\n" for path in list_files(paths, settings, texts))
        return OK
    return _checked(paths, texts, given, settings, flags)


def _checked(
    paths: list[str], texts: dict[str, str], given: StandardInput | None, settings: Settings, flags: dict[str, Any]
) -> int:
    """What the flags ask to be done with what is found."""
    if flags.get("add_noqa"):
        from dslint.noqa_command import add_noqa

        return add_noqa(paths, settings, flags.get("reason"), settings.min_severity, bool(flags.get("quiet")))
    if flags.get("write_baseline"):
        return _write_baseline(paths, texts, settings, flags)
    if flags.get("profile"):
        return _profile(paths, texts, settings, flags)
    if flags.get("diff") or flags.get("fix_only") or settings.fix:
        return _fix(paths, texts, given, settings, flags)
    from dslint.engine.run import check_paths

    with shown_progress(bool(flags.get("quiet"))):
        result = check_paths(paths, settings, texts, ignore_noqa=bool(flags.get("ignore_noqa")))
    return _report(result, settings, flags, texts)


def _write_baseline(paths: list[str], texts: dict[str, str], settings: Settings, flags: dict[str, Any]) -> int:
    """What is found today becomes the baseline: an earlier one is forgotten, whatever it knew."""
    from dataclasses import replace

    from dslint.core.words import counted
    from dslint.engine.run import check_paths
    from dslint.rules.own import NEVER_IN_BASELINE
    from dslint.suppress.baseline import write_baseline
    from dslint.suppress.run import texts_of

    with shown_progress(bool(flags.get("quiet"))):
        result = check_paths(paths, replace(settings, baseline=None), texts)
    for line in result.problems:
        say(line)
    if result.problems:
        return TROUBLE
    known = [finding for finding in result.findings if finding.code not in NEVER_IN_BASELINE]
    number = write_baseline(flags["write_baseline"], known, texts_of(texts))
    if not flags.get("quiet"):
        say(f"wrote {counted(number, 'finding')} to {flags['write_baseline']}; use it with --baseline, or as a setting")
    return OK


def _profile(paths: list[str], texts: dict[str, str], settings: Settings, flags: dict[str, Any]) -> int:
    from time import perf_counter

    from dslint.core.profile import Profile
    from dslint.engine.run import check_paths

    profile, start = Profile(), perf_counter()
    result = check_paths(paths, settings, texts, bool(flags.get("ignore_noqa")), profile)
    seconds = perf_counter() - start
    code = _report(result, settings, flags, texts)
    sys.stderr.write(f"\n{profile.table()}\n{seconds:.3f} seconds in all; the workers are busy at the same time\n")
    return code


class _UsageError(Exception):
    """Flags that do not go together, as one line."""


def _check_usage(paths: Sequence[str], flags: dict[str, Any]) -> None:
    if "-" in paths and len(paths) > 1:
        raise _UsageError("`-` reads standard input and stands alone: it cannot be mixed with other paths")
    if "stdin_filename" in flags and "-" not in paths:
        raise _UsageError("--stdin-filename names the text on standard input: write `-` instead of paths")
    fixing = next((name for name in ("fix", "fix_only", "diff") if flags.get(name)), None)
    if "reason" in flags and "add_noqa" not in flags:
        raise _UsageError("--reason is what the comments of --add-noqa say")
    if "add_noqa" in flags and (fixing or "-" in paths):
        other = f"--{fixing.replace('_', '-')}" if fixing else "standard input"
        raise _UsageError(f"--add-noqa changes files: it cannot be mixed with {other}")
    if "write_baseline" in flags and fixing:
        raise _UsageError(
            f"--write-baseline writes what is found: it cannot be mixed with --{fixing.replace('_', '-')}"
        )
    if "watch" in flags and (changing := next((flag for flag in _NOT_WATCHED if flag in flags), None)):
        raise _UsageError(f"--watch only looks: it cannot be mixed with --{changing.replace('_', '-')}")
    if "watch" in flags and "-" in paths:
        raise _UsageError("--watch looks at files, not at standard input")
    if "profile" in flags and fixing:
        raise _UsageError(f"--profile measures a check: it cannot be mixed with --{fixing.replace('_', '-')}")


def _check_statistics(output_format: str) -> None:
    from dslint.report import STATISTICS_FORMATS

    if output_format not in STATISTICS_FORMATS:
        known = ", ".join(STATISTICS_FORMATS)
        raise _UsageError(f"--statistics has no place in the format {output_format}, only in {known}")


def start_of(paths: Sequence[str], flags: dict[str, Any]) -> Path:
    """Where the search for a settings file begins: the folder that holds all paths, in whatever order they come."""
    if paths[0] == "-":
        return Path(flags.get("stdin_filename", "."))
    found = [os.path.abspath(path) for path in paths if os.path.exists(path)]
    try:
        return Path(os.path.commonpath(found)) if found else Path()
    except ValueError:  # two drives
        return Path(found[0])


def _fix(
    paths: list[str], texts: dict[str, str], given: StandardInput | None, settings: Settings, flags: dict[str, Any]
) -> int:
    from dslint.engine import fixer

    ignore_noqa = bool(flags.get("ignore_noqa"))
    with shown_progress(bool(flags.get("quiet"))):
        fixed = fixer.fix_paths(paths, settings, settings.unsafe_fixes, texts, ignore_noqa=ignore_noqa)
    for line in fixed.refused:
        say(line)
    if flags.get("diff"):
        from dslint.engine.diff import unified_diff

        head = given.raw[:3] if given else b""
        _write_output(unified_diff(fixed.changed, fixed.before, fixed.after, head), flags)
        for line in fixed.result.problems:
            say(line)
        if fixed.result.problems:
            return TROUBLE
        _say_unsafe(fixed.result, settings, flags)
        return FINDINGS if fixed.changed and not settings.exit_zero else OK
    result, texts = fixed.result, {**texts, **fixed.after}
    if given:
        # Text from standard input goes back to standard output, findings to standard error.
        sys.stdout.buffer.write(given.changed_to(texts[given.name]) if fixed.changed else given.raw)
    elif problems := fixer.write(fixed):
        # What could not be written is as it was: judge what stands on disk now.
        from dslint.engine.run import check_paths

        texts = {}
        result = check_paths(paths, settings, ignore_noqa=ignore_noqa)
        result.problems += problems
    changed = FINDINGS if fixed.applied and flags.get("exit_non_zero_on_fix") else OK
    if fixed.applied and not result.problems and not flags.get("quiet"):
        from dslint.core.words import counted

        say(f"fixed {counted(fixed.applied, 'finding')} in {counted(fixed.files, 'file')}")
    if flags.get("fix_only"):
        for line in result.problems:
            say(line)
        _say_unsafe(result, settings, flags)
        return TROUBLE if result.problems else changed
    code = _report(result, settings, flags, texts, to_stderr=given is not None)
    return max(code, changed)


def _say_unsafe(result: Result, settings: Settings, flags: dict[str, Any]) -> None:
    """Where no report follows: an empty diff would look as if there were nothing to mend."""
    from dslint.report import unsafe_line

    line = "" if settings.unsafe_fixes or flags.get("quiet") else unsafe_line(result.findings)
    if line:
        say(line)


def _report(
    result: Result, settings: Settings, flags: dict[str, Any], texts: dict[str, str], to_stderr: bool = False
) -> int:
    from dslint import report
    from dslint.engine.translations import joined_pages
    from dslint.report.gathered import gathered
    from dslint.report.options import ReportOptions, terminal_width, use_color, use_links
    from dslint.report.sources import FileSources
    from dslint.report.view import language_for, view_of
    from dslint.translate import translator
    from dslint.translate.findings import translated

    result.findings = joined_pages(result.findings)
    output_format = _format(settings, flags)
    translate = translator(language_for(settings.lang, output_format, os.environ))
    stream = sys.stderr if to_stderr else sys.stdout
    has_color = "output_file" not in flags and use_color(flags.get("color", "auto"), stream, os.environ)
    options = ReportOptions(
        color=has_color,
        hyperlinks=has_color and use_links(stream, os.environ),
        width=terminal_width(stream, os.environ),
        files=result.files,
        suppressed=tuple(result.suppressed),
        translate=translate,
    )
    is_counted = bool(flags.get("statistics"))
    told = gathered(result.findings)
    view = view_of(told, output_format, settings.min_severity, settings.fail_on, is_counted)
    render = (report.statistics_renderer if is_counted else report.renderer)(output_format)
    text = render(translated(view.shown, translate), FileSources(texts), options)
    if to_stderr:
        sys.stderr.write(text)
    else:
        _write_output(text, flags)
    for line in result.problems:
        say(line)
    if not flags.get("quiet"):
        if not result.files:
            # After a missing path that would be no news.
            if not result.problems:
                say(translate("no files to check"))
        else:
            _say_gone(result.gone, translate)
            summary = report.summary_line(view.shown, result.files, view.left_out, result.paths, translate)
            sys.stderr.write(summary + "\n")
    return _exit_code(result, settings)


def _say_gone(gone: Sequence[str], translate: Translator) -> None:
    """Entries of the baseline that are over: who keeps them would not notice when the finding comes back."""
    if gone:
        shown = "; ".join(gone[:3]) + ("; ..." if len(gone) > 3 else "")
        what = "1 finding of the baseline is" if len(gone) == 1 else f"{len(gone)} findings of the baseline are"
        say(translate(f"{what} gone ({shown}): --write-baseline forgets {'it' if len(gone) == 1 else 'them'}"))


def _format(settings: Settings, flags: dict[str, Any]) -> str:
    if settings.output_format:
        return settings.output_format
    return "full" if sys.stdout.isatty() and "output_file" not in flags else "concise"


def _write_output(text: str, flags: dict[str, Any]) -> None:
    target = flags.get("output_file")
    if target:
        Path(target).write_text(text, encoding="utf-8")
    else:
        # A path with bytes that are no UTF-8 must not end the report.
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def _exit_code(result: Result, settings: Settings) -> int:
    from dslint.core.finding import Severity
    from dslint.rules.own import RULE_CRASHED

    if result.problems or any(f.code == RULE_CRASHED.code for f in result.findings):
        return TROUBLE
    threshold = Severity(settings.fail_on).rank
    failing = any(f.severity.rank >= threshold for f in result.findings)
    return FINDINGS if failing and not settings.exit_zero else OK
