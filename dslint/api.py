"""dslint for programs: ``dslint.check`` judges files, ``dslint.preflight`` the script that calls it.

Both are stable: names, parameters, and the fields of what they return change as flags do. Nothing here imports torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dslint.core.finding import Finding
from dslint.runner.report import Report

if TYPE_CHECKING:
    from dslint.settings import Settings

__all__ = ["Finding", "Report", "check", "preflight"]

SeverityName = Literal["error", "warning", "info"]
ConsumerName = Literal["deepspeed", "hf", "accelerate", "lightning"]
# How long the first line of a script may take, in seconds.
_TIME_LIMIT = 0.5


def check(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ".",
    *,
    world_size: int | None = None,
    nnodes: int | None = None,
    nproc_per_node: int | None = None,
    deepspeed_version: str | None = None,
    transformers_version: str | None = None,
    accelerate_version: str | None = None,
    consumer: ConsumerName | None = None,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    fail_on: SeverityName | None = None,
    config: str | os.PathLike[str] | None = None,
    isolated: bool = False,
) -> Report:
    """Judge files and folders, as ``dslint check`` does with the flags of the same names.

    Raises:
        ValueError: a fact or rule that does not exist, or a mistake in the settings of the project.
    """
    from dslint.engine.run import check_paths

    given = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    flags = {
        "world-size": world_size, "nnodes": nnodes, "nproc-per-node": nproc_per_node, "consumer": consumer,
        "deepspeed-version": deepspeed_version, "transformers-version": transformers_version,
        "accelerate-version": accelerate_version, "select": select, "ignore": ignore, "fail-on": fail_on,
    }  # fmt: skip
    settings = _settings(given, flags, config, isolated)
    result = check_paths(given, settings)
    text = _text(result.findings)
    fail_on_found = "never" if settings.exit_zero else settings.fail_on
    return Report(tuple(result.findings), tuple(result.problems), result.files, fail_on_found, text)


def preflight(
    argv: Sequence[str] | None = None,
    *,
    fail_on: SeverityName | None = None,
    time_limit: float = _TIME_LIMIT,
) -> Report:
    """Judge the script that runs, as it was started; the first line of a training script.

    ``argv`` are the words of the script (default: ``sys.argv``). Launcher and number of ranks come from the variables
    that the launcher has set. Rank 0 prints the report to standard error. ``fail_on`` is the lowest severity that ends
    the script (default: that of the settings, else ``warning``). After ``time_limit`` seconds the script goes on; what
    was not judged by then is said (0: no limit). A failure of dslint itself is one line, and the script goes on.

    Raises:
        SystemExit: something was found at or above ``fail_on``; the exit code is 1.
    """
    from dslint.runner.script import answer_of
    from dslint.runner.watch import Failure

    words = list(sys.argv if argv is None else argv) or [""]
    answer, lines = answer_of(words, {} if fail_on is None else {"fail-on": fail_on}, time_limit)
    for line in lines:
        sys.stderr.write(line)
    if isinstance(answer, Failure):
        return Report(problems=(answer.message,), fail_on=fail_on or "warning")
    if not answer.ok:
        raise SystemExit(1)
    return answer


def _settings(
    paths: Sequence[str], flags: dict[str, Any], config: str | os.PathLike[str] | None, isolated: bool
) -> Settings:
    from dslint.settings import load_settings

    found = [os.path.abspath(path) for path in paths if os.path.exists(path)]
    start = Path(os.path.commonpath(found)) if found else Path()
    return load_settings(start, flags, Path(config) if config is not None else None, isolated)


def _text(findings: Sequence[Finding]) -> str:
    from dslint.report import renderer
    from dslint.report.options import ReportOptions
    from dslint.report.sources import FileSources

    return renderer("concise")(findings, FileSources(), ReportOptions())
