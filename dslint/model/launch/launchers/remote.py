"""Programs that hand a command line to another machine, another session or the batch system."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.model.launch.command import Word
from dslint.model.launch.launchers.base import options, parse_options
from dslint.model.launch.launchers.tables import SRUN

# ``sbatch`` reads the options of ``srun`` and a few of its own.
SBATCH = options(
    " ".join(SRUN.values) + " --wrap --array --mail_type --mail_user --export_file --get_user_env",
    " ".join(SRUN.switches) + " --parsable --requeue --no_requeue --hold -H --test_only",
    guesses=False,
)
_SSH = options("-p -i -l -o -F -J -L -R -D -b -c -E -e -I -m -O -Q -S -W -w -B", abbreviates=False, guesses=False)
_MANY = options(
    "-w -x -l -t -u -R -f -g -h -H -p -o -e -O --hosts --host --user --timeout --par", abbreviates=False, guesses=False
)
_MANY_HOSTS = frozenset({"pdsh", "clush", "pssh", "parallel-ssh"})
# The programs that :func:`remote_words` knows.
NAMES = _MANY_HOSTS | {"ssh", "tmux"}
_TMUX = options("-s -n -t -c -x -y -e -F -l -p", abbreviates=False, guesses=False)
# tmux commands that start a program, and the one that types a line into a shell.
_TMUX_STARTS = frozenset({"new", "new-session", "neww", "new-window", "split-window", "splitw", "respawn-pane"})


def remote_words(name: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """The words of the command that the other side runs; empty when this is no such program."""
    if name == "ssh":
        return parse_options(words[1:], _SSH).rest[1:]
    if name in _MANY_HOSTS:
        return parse_options(words[1:], _MANY).rest
    if name == "tmux" and len(words) > 2:
        rest = parse_options(words[2:], _TMUX).rest
        if words[1].text in _TMUX_STARTS:
            return rest
        if words[1].text in ("send", "send-keys"):
            return rest[:1]
    return ()
