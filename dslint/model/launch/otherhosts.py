"""Whether a shell text starts anything on other machines, or hands work to a queue."""

from __future__ import annotations

import re

from dslint.parse.shell import ShellDoc

# What `xargs` calls without leaving the machine.
_LOCAL = (
    r"(?:/(?:usr/)?bin/)?(?:kill|rm|mv|cp|ls|cat|echo|printf|mkdir|touch|chmod|grep|sed|awk|cut|wc|basename|dirname)"
)
# What starts a program on other nodes, or hands the script to the queue once more.
_REACHES = re.compile(
    r"(?<![\w-])(?:srun|sbatch|ssh|pdsh|pssh|parallel-ssh|clush|mpirun|mpiexec(?:\.\w+)?|orterun|prun|ibrun|jsrun|aprun|blaunch"
    r"|pbsdsh|flux)(?![\w-])"
    # These do so only with certain words behind them; a file may be called like them.
    r"|(?<![\w./-])ray[ \t]+(?:start|up|exec|attach|submit|job)(?![\w-])"
    r"|(?<![\w./-])parallel[ \t][^\n]*(?::::|-S|--sshlogin|--slf|--onall|--nonall)"
    rf"|(?<![\w./-])xargs(?=[ \t])(?![^\n|;&]*[ \t](?:{_LOCAL})(?:[ \t;|&)]|$))(?![ \t]*(?:$|[|;&)]))",
    re.MULTILINE,
)
_ASKS = re.compile(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`")


def reaches_other_hosts(shell: ShellDoc) -> bool:
    """Whether the text starts something on other hosts; what it only asks for, inside ``$( )``, does not count."""
    return _REACHES.search(_ASKS.sub("", uncommented(shell))) is not None


def uncommented(shell: ShellDoc, start: int = 0) -> str:
    """The text from an offset on (in the text itself) without its comments."""
    text = shell.text
    for comment in reversed(shell.comments):
        if comment.start - shell.base >= start:
            text = text[: comment.start - shell.base] + text[comment.end - shell.base :]
    return text[start:]
