"""**What.** `nohup CUDA_VISIBLE_DEVICES=0 python train.py`: a variable is set after a program that starts another one
(`nohup`, `setsid`, `nice`, `ionice`, `stdbuf`, `timeout`, `taskset`, `exec`, `command`, `/usr/bin/time`).

**Why it hurts.** `NAME=value` sets a variable at the begin of a command only. Behind `nohup` it is the name of the
program to start: `nohup: failed to run command 'CUDA_VISIBLE_DEVICES=0': No such file or directory`, exit code 127.
In the background, with the output in a file, nobody sees it.

**Fix.** `nohup env CUDA_VISIBLE_DEVICES=0 python train.py` (what the fix writes), or the variable in front of `nohup`.

**When it stays quiet.** With `env` between them; for `time`, which is a word of bash itself and takes assignments, at
the begin of a command; for programs that take assignments (`sudo`, `env`) and those that the rule has not seen fail.

**Evidence.** Run in bash 5 with coreutils and util-linux: each of the programs above refuses. `time NAME=value` runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.around import nodes_at
from dslint.model.launch.command import Word
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import ASSIGNMENT
from dslint.model.launch.launchers.wrappers import unwrap
from dslint.parse.shelllex import UnfinishedWordError, simple_command
from dslint.rules.base import RuleMeta, bad, good

# Seen to take an assignment for the name of a program.
_REFUSE = (
    *("nohup", "setsid", "nice", "ionice", "stdbuf", "timeout", "taskset", "chrt", "flock"),
    *("exec", "command", "time"),
)

META = RuleMeta(
    code="DSL326",
    name="assignment-behind-program",
    kind="launch",
    severity=Severity.ERROR,
    summary="A variable set after `nohup` or the like, which takes it for the program to start",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Simple-Commands.html",),
    needs=(rf"/(?:{'|'.join(_REFUSE)})[ \t]+[^\n#;|&()]*\w=/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "nohup CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py > log 2>&1 &\n"
_ENV = {"run.sh": _RUN.replace("nohup ", "nohup env "), **_SCRIPT}

EXAMPLES = (
    bad("nohup", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 error", fixed=_ENV),
    bad("with options", {"run.sh": "timeout -k 5 2h OMP_NUM_THREADS=8 python train.py\n", **_SCRIPT}, "run.sh:1 error",
        fixed={"run.sh": "timeout -k 5 2h env OMP_NUM_THREADS=8 python train.py\n"}),
    bad("a program in a program, inside a loop", {
        "run.sh": "for seed in 1 2; do\n  A=1 nohup nice -n 5 SEED=$seed python train.py &\ndone\n", **_SCRIPT,
    }, "run.sh:2 error"),
    bad("time as a program", {"run.sh": "nohup time A=1 python train.py\n", **_SCRIPT}, "run.sh:1 error"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN}```\n", **_SCRIPT}, "README.md:2 warning"),
    good("env", _ENV),
    good("in front", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 nohup torchrun --nproc_per_node 2 train.py &\n", **_SCRIPT}),
    good("a word of bash", {"run.sh": "time A=1 python train.py\ntime -p A=1 python train.py\n", **_SCRIPT}),
    good("an argument", {"run.sh": "nohup python train.py LR=1 > log &\nexec python train.py A=1\n", **_SCRIPT}),
    good("another command", {"run.sh": "nohup python train.py & A=1 python train.py\n", **_SCRIPT}),
    good("text", {"run.sh": "echo nohup A=1 python train.py\npython train.py # nohup A=1 python\n", **_SCRIPT}),
)  # fmt: skip

_BEGIN = re.compile(rf"(?<![\w$./-])(?:/usr/bin/time|{'|'.join(_REFUSE)})[ \t]+(?=[^\n#;|&()]*\w=)")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Assignments that a program takes for a program."""
    del context
    shell = doc.shell
    done = 0
    for match in _BEGIN.finditer(shell.text if shell.anchor is None else ""):
        words = _words(doc, match.start()) if match.start() >= done else ()
        if not words:
            continue
        done = words[-1].location.span.end - shell.base
        found = unwrap(words, {})
        taken, rest = found.around, found.rest
        program = program_name(taken[-1][0]) if taken else ""
        is_keyword = len(taken) == 1 and words[0].raw == "time" and not _is_behind_assignment(doc, words[0])
        if len(rest) < 2 or program not in _REFUSE or is_keyword or not ASSIGNMENT.match(rest[0].raw):
            continue
        first = rest[0]
        yield META.finding(
            first.location,
            f"`{program}` takes `{first.raw.replace('`', '')}` for the program and stops: `No such file or directory`",
            hint=f"Write `{program} env {first.raw.replace('`', '')} ...`, or set it before `{words[0].raw}`",
            fix=Fix(
                "Insert `env`", (Edit(doc.source.path, Span(*[first.location.span.start] * 2), "env "),), uncovers=True
            ),
            severity=Severity.WARNING if doc.in_docs else None,
            facts={"program": program},
        )


def _words(doc: LaunchDoc, start: int) -> tuple[Word, ...]:
    """The words of the command whose name stands there; none where it is a text, or an argument."""
    shell = doc.shell
    place = doc.source.location(Span(start, start).shifted(shell.base))
    for node in nodes_at(doc, place):
        if node.type in ("string", "raw_string", "heredoc_body", "comment", "ERROR"):
            return ()
        if node.type == "command":
            name = node.child_by_field_name("name")
            if name is None or shell.local(name).start != start:
                return ()
            break
    else:
        return ()
    try:
        spans = simple_command(shell.text, start).words
    except UnfinishedWordError:
        return ()
    found = []
    for span in spans:
        raw = shell.text[span.start : span.end]
        text = raw if re.fullmatch(r"[\w@%+=:,./-]+", raw) else None
        found.append(Word(text, raw, doc.source.location(span.shifted(shell.base))))
    return tuple(found)


def _is_behind_assignment(doc: LaunchDoc, word: Word) -> bool:
    """``A=1 time B=2 cmd``: the word is not the first of its command."""
    start = word.location.span.start
    return re.search(r"(?:^|[\s;&|(])\w+=\S*[ \t]+$", doc.source.text[max(start - 200, 0) : start]) is not None
