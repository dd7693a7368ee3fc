"""The codes of dslint itself: what it says about files it cannot judge and about its own comments."""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.rules.base import Example, RuleMeta, bad, good

SYNTAX_ERROR = RuleMeta(
    code="DSL900",
    name="syntax-error",
    kind="dslint",
    severity=Severity.ERROR,
    summary="A file that dslint would judge cannot be parsed",
)

RULE_CRASHED = RuleMeta(
    code="DSL901",
    name="rule-crashed",
    kind="dslint",
    severity=Severity.ERROR,
    summary="A rule of dslint failed on this file: a bug in dslint, not in the file",
)

UNREADABLE_FILE = RuleMeta(
    code="DSL902",
    name="unreadable-file",
    kind="dslint",
    severity=Severity.WARNING,
    summary="A file cannot be read, decoded, or is too large to judge",
)

UNUSED_SUPPRESSION = RuleMeta(
    code="DSL903",
    name="unused-suppression",
    kind="dslint",
    severity=Severity.WARNING,
    summary="A suppression comment, or an entry of `per-file-ignores`, silences nothing",
    fix="safe",
)

# What says that a file was not judged is no finding to live with.
NEVER_IN_BASELINE = frozenset({"DSL900", "DSL901", "DSL902"})

METAS: dict[str, RuleMeta] = {
    meta.code: meta for meta in (SYNTAX_ERROR, RULE_CRASHED, UNREADABLE_FILE, UNUSED_SUPPRESSION)
}

EXPLANATIONS: dict[str, str] = {
    "DSL900": """\
**What.** The text of the file breaks the grammar of its language, and the parser stopped at the marked place.

**Why it hurts.** A script or config with a syntax error fails on every rank as soon as it is read. For dslint it
also means that the other rules could not judge this file, or only the part before the error.

**Fix.** Mend the syntax at the marked place. Comments and trailing commas in a JSON config are no syntax error for
dslint; templates with placeholders belong under `exclude` in the settings.

**When it stays quiet.** Files that dslint would not judge anyway: a JSON file that is no DeepSpeed config, a Python
file without any word that a rule looks for. A Python file or notebook that the command line names is
parsed all the same when it names torch, DeepSpeed, transformers, accelerate or Lightning.
""",
    "DSL901": """\
**What.** A rule raised an exception while it looked at this file. The message names the rule and the exception.

**Why it hurts.** The file is not judged by that rule in this run. All other rules and files were judged.

**Fix.** Report the message and, if you can, the file. Until it is mended, `--ignore` the rule that is named.

**When it stays quiet.** Bad input is no crash: a file that cannot be parsed or read is DSL900 or DSL902.
""",
    "DSL902": """\
**What.** The file was named or found, and dslint could not read it: no permission, it vanished during the run, it is
not UTF-8, it is binary, a pipe or device, too large, or nested too deeply. As an info: LibCST refuses legal Python
(tabs and spaces in one block), which is then interpreted only; or a launch file calls scripts that
start more commands than dslint follows, so that those of the last calls are judged without their arguments.

**Why it hurts.** A mistake in this file would pass unseen.

**Fix.** Make the file readable and UTF-8, or exclude it in the settings if it is not meant to be judged.

**When it stays quiet.** Files that are excluded by settings or by `.gitignore`.
""",
    "DSL903": """\
**What.** A comment such as `# noqa: DSL252` or `# dslint: ignore[DSL252]` names a rule that reports nothing there.

**Why it hurts.** The comment outlived its reason. It would hide the next real mistake on the same line without
anyone having decided so.

**Fix.** Delete the comment, or the code in it that no longer applies; `--fix` does.

**When it stays quiet.** `# noqa` without codes and codes of other tools; and codes that are not selected in this
run, since a rule that did not run cannot say whether its suppression is needed. Rules whose finding goes with the run
may need the comment for another launch or flag: where the whole project is judged, it is a note; for a part of it,
nothing is said. Entries of `per-file-ignores` are told of when their file or pointer does not exist, or when no file of
the project matches their pattern (a note).
""",
}

_PARSER = "import argparse\n\nparser = argparse.ArgumentParser()\nparser."
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "DSL900": (
        bad(
            "a missing parenthesis before the collective",
            {"train.py": "import torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier(\n"},
            at="train.py:4 error",
        ),
        good(
            "the call is closed",
            {"train.py": "import torch.distributed as dist\n\ndist.init_process_group()\ndist.barrier()\n"},
        ),
    ),
    "DSL903": (
        bad(
            "the comment stayed when the type was added",
            {"train.py": f"{_PARSER}add_argument('--lr', type=float)  # noqa: DSL252\n"},
            at="train.py:4 warning",
            fixed={"train.py": f"{_PARSER}add_argument('--lr', type=float)\n"},
        ),
        good(
            "codes of other tools are theirs",
            {"train.py": "import torch.distributed as dist  # noqa: F401, E402\n"},
        ),
    ),
}
