"""What a shell does not hand on: variables to the launcher, the exit code of the launcher to who waits for it.

The real bash runs the lines, as written and as fixed, where the only program on the PATH is a recorder that writes down
the variables that it finds and ends with a code of its own. Of a real file only the names of the variables are taken.
"""

from __future__ import annotations

import os
import re
import shutil

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_NAMES = ["CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE"]
_NEVER = Expect((Kind.WRONG,), r"the launcher is never started, the script ends with 127")
_PIPE = Expect((Kind.WRONG,), r"the launcher ends with 3, the script with 0")

EXPERIMENT = Experiment(
    name="shell-hands-on",
    summary="bash keeps a variable that the launcher needs, or the exit code of the launcher",
    flavour="plain",
    ranks=1,
    expect=Expect((Kind.WRONG,), r"the launcher does not find "),
    cases=(
        Case("line-of-its-own", {"names": _NAMES, "lines": ["{}", "launcher"], "right": ["export {}", "launcher"]},
             rules=("DSL334",)),
        Case("lost-backslash", {"names": _NAMES, "lines": ["{\\}", "launcher"], "right": ["{\\} \\", "launcher"]},
             rules=("DSL334",)),
        Case("semicolon", {"names": _NAMES[:1], "lines": ["{}; launcher"], "right": ["export {}; launcher"]},
             rules=("DSL334",)),
        Case("all-exported", {"names": _NAMES, "lines": ["set -a", "{}", "launcher"],
                              "right": ["export {}", "launcher"]}, rules=("DSL334",), verdict=Verdict.NOT_REPRODUCED),
        Case("tee", {"names": [], "lines": ["launcher | tee log"], "right": ["set -o pipefail", "launcher | tee log"]},
             _PIPE, rules=("DSL342",)),
        Case("tee-of-errors", {"names": [], "lines": ["launcher |& tee log"],
                               "right": ["set -o pipefail", "launcher |& tee log"]}, _PIPE, rules=("DSL342",)),
        Case("set-e-and-tee", {"names": [], "lines": ["set -e", "launcher | tee log"],
                               "right": ["set -eo pipefail", "launcher | tee log"]}, _PIPE, rules=("DSL342",)),
        Case("redirection", {"names": [], "lines": ["launcher > log 2>&1"], "right": ["launcher"]},
             _PIPE, rules=("DSL342",), verdict=Verdict.NOT_REPRODUCED),
        *(
            Case(f"assignment-behind-{name}", {"names": _NAMES, "lines": [f"{words} {{}} launcher"],
                                               "right": [f"{words} env {{}} launcher"]},
                 _NEVER, rules=("DSL326",), verdict=verdict)
            for name, words, verdict in (
                ("nohup", "nohup", Verdict.CONFIRMED),
                ("timeout", "timeout 20", Verdict.CONFIRMED),
                ("nice", "nice -n 1", Verdict.CONFIRMED),
                ("exec", "exec", Verdict.CONFIRMED),
                ("time-of-bash", "time", Verdict.NOT_REPRODUCED),
            )
        ),
    ),
)  # fmt: skip

_RECORDER = "#!{shell}\nset > found\nexit 3\n"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def written(rank: RankApi) -> Json:
    """The lines as they are."""
    return _run(rank, rank.params["lines"])


def fixed(rank: RankApi) -> Json:
    """The lines that hand it on."""
    return _run(rank, rank.params["right"])


def _run(rank: RankApi, lines: list[str]) -> Json:
    bash = shutil.which("bash") or "/bin/bash"
    programs = os.path.abspath("programs")
    os.makedirs(programs, exist_ok=True)
    for name in ("tee", "env", "nohup", "timeout", "nice"):
        if not os.path.lexists(os.path.join(programs, name)):
            os.symlink(shutil.which(name) or f"/usr/bin/{name}", os.path.join(programs, name))
    with open(os.path.join(programs, "launcher"), "w", encoding="utf-8") as file:
        file.write(_RECORDER.format(shell=bash))
    os.chmod(os.path.join(programs, "launcher"), 0o700)
    sets = [f"{name}=1" for name in rank.params["names"]]
    filled = [line.replace("{}", " ".join(sets)).replace("{\\}", " \\\n".join(sets)) for line in lines]
    with open("run.sh", "w", encoding="utf-8") as file:
        # The surroundings of this process may export them already.
        file.write("\n".join([*(f"unset {name}" for name in rank.params["names"]), *filled]) + "\n")
    ran = rank.command([bash, "--noprofile", "--norc", "run.sh"], {"PATH": programs}, patience=10.0)
    if not os.path.exists("found"):
        return {"found": [], "rc": ran["rc"], "started": False}
    with open("found", encoding="utf-8") as file:
        found = {line.partition("=")[0] for line in file.read().splitlines()}
    return {"found": [name for name in rank.params["names"] if name in found], "rc": ran["rc"], "started": True}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What the launcher does not find, or what the script ends with."""
    got, wanted = values[0], reference[0]
    if wanted["started"] and not got["started"]:
        return f"the launcher is never started, the script ends with {got['rc']}"
    lost = [name for name in wanted["found"] if name not in got["found"]]
    if lost:
        return f"the launcher does not find {' and '.join(lost)}"
    if got["rc"] != wanted["rc"]:
        return f"the launcher ends with {wanted['rc']}, the script with {got['rc']}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The names of the variables, in the first case of the rule."""
    finding = subject.finding
    if finding.code == "DSL326":
        return {} if case.name == f"assignment-behind-{finding.fact('program')}" else None
    first = next(c.name for c in EXPERIMENT.cases if c.rules and finding.code in c.rules)
    if case.name != first:
        return None
    names = [name for name in str(finding.fact("names") or "").split() if _NAME.fullmatch(name)]
    return {"names": names} if names else {}
