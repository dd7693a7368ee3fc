r"""A command that bash reads as two: a line end without its backslash, a blank behind it, a comment in the middle.

The real bash runs the command, as written and with its lines joined, where the only programs on the PATH are recorders
that write down their arguments. As written, the launcher gets a part of them and bash says ``command not found`` for
the rest, or the launcher gets an argument `" "` more; as fixed, it gets them all.

Of a real file only the shape of the one command is taken: a launcher of a fixed list, words of letters and digits
without any folder, and how each line ends. Nothing that bash would expand, redirect or find elsewhere is left of it.
What the missing options do to the training is not shown.
"""

from __future__ import annotations

import os
import re
import shutil

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "xtuner", "srun", "mpirun", "swift", "python", "python3")
_LOST = Expect((Kind.WRONG,), r"never gets .*command not found")
_BEHIND = ("DSL303",)

EXPERIMENT = Experiment(
    name="broken-continuation",
    summary="bash ends a command in its middle and runs the rest as another command",
    flavour="plain",
    ranks=1,
    expect=_LOST,
    cases=(
        Case("no-backslash", {"lines": ["torchrun train.py \\", "  --lr 2e-5", "  --output_dir out \\", "  --bf16"]},
             rules=("DSL301",)),
        Case("comment-then-flag", {"lines": ["torchrun train.py --lr 2e-5", "  # evaluation", "  --bf16"]},
             rules=("DSL301",)),
        Case("blank-line", {"lines": ["torchrun train.py --lr 2e-5 \\", "", "  --bf16"]}, rules=("DSL301",)),
        Case("blank-line-then-script", {"lines": ["torchrun --nproc_per_node 8 \\", "", "  train.py --bf16"]},
             rules=("DSL304",)),
        Case("blank-behind-backslash", {"lines": ["torchrun train.py \\ ", "  --lr 2e-5"]}, rules=("DSL302",)),
        Case("tab-behind-backslash", {"lines": ["deepspeed train.py \\\t", "  --bf16"]}, rules=("DSL302",)),
        Case("blank-behind-last-backslash", {"lines": ["torchrun train.py --lr 2e-5 \\ "]},
             Expect((Kind.WRONG,), r"one argument more, a blank"), rules=("DSL302",)),
        Case("comment-inside", {"lines": ["torchrun train.py --bf16 \\", "  # --max_steps 10 \\", "  --lr 2e-5"]},
             rules=_BEHIND),
        Case("comment-behind-backslash", {"lines": ["torchrun \\ # on one node", "  --nproc_per_node 8 train.py"]},
             rules=_BEHIND),
        Case("script-behind-comment", {"lines": ["torchrun \\", "  # on one node", "  train.py --bf16"]},
             rules=_BEHIND),
        Case("carriage-returns", {"lines": ["torchrun train.py \\\r", "  --lr 2e-5 \\\r", "  --bf16\r"]},
             rules=("DSL357",)),
        Case("whole", {"lines": ["torchrun train.py \\", "  --lr 2e-5 \\", "  --bf16"]}, rules=("DSL301",),
             verdict=Verdict.NOT_REPRODUCED),
        Case("comment-is-last", {"lines": ["torchrun train.py \\", "  --lr 2e-5 \\", "  # --bf16"]}, rules=_BEHIND,
             verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip

# Writes its name and arguments into a file of its own, separated by zero bytes.
_RECORDER = '#!{shell}\nprintf \'%s\\0\' "${{0##*/}}" "$@" > "{folder}/call-$$"\n'
# Blanks of web pages and word processors too.
_BLANK = r"[ \t\u00a0\u3000]"
_END = re.compile(rf"(?P<words>.*?)(?P<end>\\?{_BLANK}*)")
_FLAG = re.compile(r"\s*--?[A-Za-z]")
_PLAIN = re.compile(r"[A-Za-z0-9_.=:,+@-]+")


def written(rank: RankApi) -> Json:
    """The lines as they are."""
    return _run(rank, rank.params["lines"])


def fixed(rank: RankApi) -> Json:
    """The same words in one command: comments and blank lines left out, every line end escaped."""
    parts = [line.partition(" #")[0].strip() for line in rank.params["lines"]]
    kept = [part.rstrip("\\").strip() for part in parts if part and not part.startswith("#")]
    return _run(rank, [*(part + " \\" for part in kept[:-1]), *kept[-1:]])


def _run(rank: RankApi, lines: list[str]) -> Json:
    bash = shutil.which("bash") or "/bin/bash"
    programs = os.path.abspath("programs")
    calls = os.path.abspath("calls")
    for folder in (programs, calls):
        os.makedirs(folder, exist_ok=True)
    name = lines[0].split()[0]
    with open(os.path.join(programs, name), "w", encoding="utf-8") as file:
        file.write(_RECORDER.format(shell=bash, folder=calls))
    os.chmod(os.path.join(programs, name), 0o700)
    with open("run.sh", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    ran = rank.command([bash, "--noprofile", "--norc", "--restricted", "run.sh"], {"PATH": programs}, patience=10.0)
    found = []
    for call in sorted(os.listdir(calls)):
        with open(os.path.join(calls, call), encoding="utf-8") as file:
            found.append(file.read().split("\0")[:-1])
    said = [line for line in ran["err"].splitlines() if "not found" in line]
    return {"argv": found[0] if len(found) == 1 else found, "rc": ran["rc"], "said": said}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The arguments that the launcher does not get, and what bash says about them."""
    got, wanted = values[0]["argv"], reference[0]["argv"]
    if got == wanted:
        return None
    same = next((n for n, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), len(got))
    lost, more = wanted[same:], got[same:]
    if not lost and not "".join(more).strip():
        return f"{wanted[0]} gets one argument more, a blank: {got[1:]}"
    instead = f" and gets {more} instead" if more else ""
    said = f"; bash says `{values[0]['said'][0]}`" if values[0]["said"] else ""
    return f"{wanted[0]} never gets `{' '.join(lost)}`{instead}{said}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The shape of the command around the finding, in the case of its kind; else the case as it is."""
    finding = subject.finding
    if finding.code == "DSL357":  # any lines will do
        return {} if case.name == "carriage-returns" else None
    if finding.code == "DSL304" and finding.fact("follows") is None:
        return None
    rows = [place.region.line - 1 for place in (finding.location, *finding.related)]
    last = finding.fact("joins") is False
    lines = _shape(subject.text, rows[0], max(rows), goes_on=not last)
    of_rule = [c.name for c in EXPERIMENT.cases if c.rules == (finding.code,)]
    if case.name != ("blank-behind-last-backslash" if last else of_rule[0]):
        return None
    return {} if lines is None else {"lines": lines}


def _shape(text: str, start: int, end: int, goes_on: bool = True) -> list[str] | None:
    """The lines of the command around those rows; ``None`` when it is not plain or begins with no launcher."""
    rows = text.splitlines()
    if not 0 <= start <= end < len(rows):
        return None
    while start > 0 and (_goes_on(rows[start - 1]) or not _begins(rows[start])):
        start -= 1
    while goes_on and end + 1 < len(rows) and (_goes_on(rows[end]) or _FLAG.match(rows[end + 1])):
        end += 1
    if end - start > 60 or any(_is_quoted(line) for line in rows[start : end + 1]):
        return None
    head = re.sub(r"^\s*(?:[$>]\s+)?(?:\w+=\S*\s+)*", "", rows[start])
    if not head.split() or head.split()[0] not in _LAUNCHERS:
        return None
    return [_neutral(line, first=number == 0) for number, line in enumerate([head, *rows[start + 1 : end + 1]])]


def _begins(line: str) -> bool:
    """The line is no option, no comment and not empty: a command may begin here."""
    return re.match(r"\s*(?:-|#|$)", line) is None


def _goes_on(line: str) -> bool:
    return not line.lstrip().startswith("#") and re.search(rf"\\{_BLANK}*(?:#.*)?$", line) is not None


def _is_quoted(line: str) -> bool:
    """A string goes over the line end, or may hold what looks like a comment."""
    quotes = [line.count(mark) for mark in "'\""]
    return any(count % 2 for count in quotes) or (any(quotes) and "#" in line)


def _neutral(line: str, first: bool) -> str:
    """The line with harmless words: no folder, nothing to expand, no command but the launcher and lost options."""
    comment = re.search(r"(?:^|(?<=\s))#.*$", line)
    match = _END.fullmatch(line[: comment.start()] if comment else line)
    assert match is not None
    words = []
    for number, word in enumerate(match["words"].split()):
        last = word.strip("'\"").rpartition("/")[2]
        command = number == 0 and not first and not last.startswith("-")
        words.append(last if _PLAIN.fullmatch(last) and not command else "value")
    behind = "" if comment is None else ("# comment \\" if comment.group().endswith("\\") else "# comment")
    end = match["end"] if words else match["end"].lstrip()
    return ("" if first else "  ") + " ".join(words) + (" " if end and words else "") + end + behind
