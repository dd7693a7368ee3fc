"""The command line of ``dslint probe``. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from dslint.core.commandline import Parser, format_flag, positive

FORMATS = ("full", "concise", "json", "sarif")
BACKENDS = ("auto", "gloo", "nccl")

_EPILOG = """\
With paths, dslint lints them and probes each finding that has an experiment. Without paths, --rule, --case or --all
run experiments of the library. The probe starts processes of its own on this machine, runs only its own small
reproducers, never your code, in private folders that it deletes, with no network beyond the loopback device.

verdicts: CONFIRMED (the written arm fails, twice, and the fixed one passes), NOT REPRODUCED (both pass),
NEEDS (GPUs, a version, root: what is missing here), INCONCLUSIVE (says nothing, and why).

exit codes: 0 nothing confirmed, 1 something confirmed, 2 wrong usage or the probe cannot run.
"""


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"must be seconds between 1 and 3600, found `{text}`")
    return value


def probe_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint probe``."""
    parser = Parser(
        prog="dslint probe",
        description="Show on real ranks what a finding means.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders to lint and probe (default: .)")
    what = parser.add_argument_group("what to probe")
    what.add_argument("--rule", action="append", default=[], metavar="RULE", help="only this rule: code or name")
    what.add_argument("--finding", metavar="PATH:LINE", help="only the findings at this line")
    what.add_argument("--case", action="append", default=[], metavar="NAME", help="experiment, or experiment/case")
    what.add_argument("--all", action="store_true", help="all experiments of the library")
    what.add_argument("--list", action="store_true", help="list the experiments, run nothing")
    facts = parser.add_argument_group("facts that no file states")
    facts.add_argument("--world-size", type=positive, metavar="N", help="number of processes (ranks) in the job")
    facts.add_argument("--deepspeed-version", metavar="V", help="DeepSpeed release or range of the project")
    how = parser.add_argument_group("how")
    how.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: nccl when there are enough GPUs")
    how.add_argument("--ranks", type=positive, metavar="N", help="processes of an arm (default: the experiment's own)")
    how.add_argument("--timeout", type=_seconds, metavar="S", help="seconds after which an arm is given up")
    how.add_argument("--python", default="", metavar="FILE", help="the interpreter to probe (default: this one)")
    how.add_argument("-j", "--jobs", type=positive, default=0, metavar="N", help="experiments at a time (3 a core)")
    how.add_argument("--no-explain", dest="explain", action="store_false", help="no account of the collectives")
    output = parser.add_argument_group("output")
    format_flag(output, FORMATS, help="default: full on a terminal")
    output.add_argument("--report", action="append", default=[], metavar="FILE", help="a report to keep: .md or .html")
    output.add_argument("--emit-repro", metavar="DIR", help="write a self-contained repro.py for each, run none")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    output.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    return parser
