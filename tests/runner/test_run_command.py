"""``dslint run -- COMMAND``: what the command notices of it (nothing), and what happens where something is wrong.

Whole processes: streams, signals, exit codes and process ids are those of a shell.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DSLINT = [sys.executable, "-m", "dslint"]
BAD = "torchrun --nproc_per_node 8 --master_port 70000 train.py"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("import torch\nprint('trained')\n")
    tool = tmp_path / "bin" / "torchrun"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho started\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".git" / "cache"))
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*words: str | bytes, stdin: bytes = b"", **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*DSLINT, "run", *words], input=stdin, capture_output=True, timeout=100, **more)


# What the command notices


def test_the_command_is_the_same_process_with_the_same_words() -> None:
    words = ["--", "a b", "", "*", "$HOME", "it's", "--check-only", "a\nb", "-n"]
    code = "import json, os, sys; print(json.dumps([os.getpid(), sys.argv[1:]]))"
    with subprocess.Popen(
        [*DSLINT, "run", "--", sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        out = child.communicate()[0]
    assert json.loads(out) == [child.pid, words]


def test_words_that_are_no_utf8_stay_as_they_are() -> None:
    code = "import os, sys; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))"
    words = [b"\xff\xfe", b"caf\xe9", "größe".encode()]
    assert run("--", sys.executable, "-c", code, *words).stdout == b"|".join(words)


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_the_environment_is_the_same_byte_for_byte(locale: str) -> None:
    """Python changes ``LC_CTYPE`` in the locale C."""
    environ = {**os.environ, "LC_ALL": "", "LANG": locale, "X": "a\nb=c"}
    for name in ("LC_ALL", "LC_CTYPE"):
        environ.pop(name, None)
    raw = {os.fsencode(name): os.fsencode(text) for name, text in environ.items()}
    raw[b"BYTES"] = b"\xff\xe9"
    seen = [
        subprocess.run([*command, "env", "-0"], env=raw, capture_output=True).stdout.split(b"\0")
        for command in ([], [*DSLINT, "run", "--"])
    ]
    assert sorted(seen[0]) == sorted(seen[1])


def test_standard_input_reaches_the_command_and_standard_output_is_its_own() -> None:
    data = bytes(range(256)) * 4096
    done = run("--", "cat", stdin=data)
    assert (done.returncode, done.stdout == data) == (0, True)


def test_a_job_that_writes_binary_data_writes_only_that(project: Path) -> None:
    (project / "train.py").write_text("import os\nos.write(1, bytes(range(256)) * 1000)\n")
    done = run("--", sys.executable, "train.py")
    assert done.stdout == bytes(range(256)) * 1000
    assert b"train.py" in done.stderr


def test_open_files_ignored_signals_and_limits_are_handed_on() -> None:
    out, into = os.pipe()
    code = (
        "import os, signal, resource\n"
        f"os.write({into}, b'here')\n"
        "print(os.umask(0), resource.getrlimit(resource.RLIMIT_CORE)[0], os.nice(0))\n"
        "print([line for line in open('/proc/self/status') if line.startswith(('SigIgn', 'SigBlk'))])\n"
    )

    def prepare() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.umask(0o027)

    command = ["sh", "-c", f'exec "{sys.executable}" -c "$0"', code]
    plain, through = (
        subprocess.run([*before, *command], capture_output=True, pass_fds=[into], preexec_fn=prepare).stdout
        for before in ([], [*DSLINT, "run", "-q", "--"])
    )
    assert (plain, plain.count(b"SigIgn")) == (through, 1)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        assert pipe.read() == b"herehere"


def test_a_closed_pipe_ends_the_command_as_it_ends_others() -> None:
    """Python ignores SIGPIPE; a program that inherits that writes on for ever."""
    script = "$@ -- yes | head -c 10; echo ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", script, "x", *DSLINT, "run", "-q"], capture_output=True, timeout=60)
    assert done.stdout.endswith(b"141\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_command_itself(number: int) -> None:
    code = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(60)"
    if number != signal.SIGKILL:
        code = f"import signal; signal.signal({int(number)}, signal.SIG_DFL); {code}"
    with subprocess.Popen([*DSLINT, "run", "--", sys.executable, "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(number)
        assert child.wait(20) == -number


def test_a_handler_of_the_command_decides_about_its_exit_code() -> None:
    code = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([*DSLINT, "run", "--", sys.executable, "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        child.terminate()
        assert child.wait(20) == 7


def test_the_command_has_no_children_that_it_has_not_started() -> None:
    code = "import os\ntry:\n    print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError:\n    print('none')"
    assert run("--", sys.executable, "-c", code).stdout == b"none\n"


def test_an_interrupt_while_judging_ends_it_all(project: Path) -> None:
    patched = "import time, dslint.runner.judging as j\nj.judge = lambda *a, **b: time.sleep(50)\n"
    code = f"{patched}from dslint.cli import main\nimport sys\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", code, "run", "--", "sh", "-c", "echo started"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
        time.sleep(1.5)
        os.killpg(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=20)
    assert (child.returncode, out) == (130, b"")


@pytest.mark.parametrize("status", [0, 1, 3, 255])
def test_the_exit_code_is_that_of_the_command(status: int) -> None:
    assert run("--", "sh", "-c", f"exit {status}").returncode == status


def test_what_cannot_be_started_has_the_exit_code_of_a_shell(project: Path) -> None:
    (project / "plain.txt").write_text("text")
    script = project / "without-first-line"
    script.write_text("echo ran $1\n")
    script.chmod(0o755)
    for command, code, words in (
        ("no-such-program", 127, "no-such-program: command not found"),
        ("./no-such-file", 127, "command not found"),
        ("./plain.txt", 126, "./plain.txt: Permission denied"),
        ("./bin", 126, "./bin: Is a directory"),
    ):
        done = run("--", command)
        assert (done.returncode, done.stdout) == (code, b"")
        assert words in done.stderr.decode()
        assert subprocess.run(["bash", "-c", command], capture_output=True).returncode == code
    assert run("-q", "--", "./without-first-line", "x").stdout == b"ran x\n"


# What is found


def test_a_job_with_a_finding_does_not_start() -> None:
    done = run("--", *BAD.split())
    assert (done.returncode, done.stdout) == (1, b"")
    said = done.stderr.decode()
    assert re.search(r"^<command line>:1:\d+: DSL309 ", said, re.M)
    assert "torchrun: 1 node x 8 processes = 8 ranks" in said
    assert said.endswith("dslint: 1 error: the command does not start (--fail-on warning)\n")


def test_selection_severity_and_stated_facts_are_those_of_check() -> None:
    assert run("--ignore", "DSL309", "--", *BAD.split()).stdout == b"started\n"
    assert run("--select", "DSL309", "--fail-on", "error", "--", *BAD.split()).returncode == 1
    (Path("dslint.toml")).write_text('ignore = ["port-out-of-range"]\n')
    assert run("--", *BAD.split()).stdout == b"started\n"
    assert run("--isolated", "--", *BAD.split()).returncode == 1


def test_suppressions_hold_unless_somebody_says_otherwise() -> None:
    Path("job.sh").write_text(f"{BAD}  # dslint: ignore[DSL309] the platform maps it\n")
    assert run("--", "bash", "job.sh").stdout == b"started\n"
    assert run("--ignore-noqa", "--", "bash", "job.sh").returncode == 1
    Path("job.sh").write_text(f"{BAD}\n")
    Path("dslint.toml").write_text("exit-zero = true\n")
    done = run("--", "bash", "job.sh")
    assert (done.stdout, b"1 error in 2 files; the command starts" in done.stderr) == (b"started\n", True)


def test_every_flag_is_taken(project: Path) -> None:
    (project / "own.toml").write_text('ignore = ["DSL309"]\n')
    flags = "--select ALL --ignore DSL4 --extend-select DSL310 --extend-ignore DSL310 --per-file-ignores *.sh:DSL3"
    flags += " --fail-on error --min-confidence certain --world-size 8 --deepspeed-version 0.16.9 --color never"
    flags += " --transformers-version 4.50 --accelerate-version >=1 --consumer hf --output-format full --quiet"
    flags += " --config own.toml --project-rules --time-limit 5 --ignore-noqa"
    done = run(*flags.split(), "--", "torchrun", "--nproc_per_node", "8", "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"started\n", b"")
    assert run("--isolated", "--nnodes", "1", "--nproc-per-node", "8", "--", "torchrun", "train.py").returncode == 0


def test_a_launch_without_a_file_of_its_own_is_a_launch() -> None:
    done = run("--", "torchrun", "-m", "some.library")
    assert done.stdout == b"started\n"
    assert done.stderr.endswith(b"dslint: no problems; the command starts\n")


def test_check_only_stops_before() -> None:
    good = ["torchrun", "--nproc_per_node", "2", "train.py"]
    done = run("--check-only", "--", *good)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().endswith("dslint: no problems in 1 file\n")
    assert run("--check-only", "--", *BAD.split()).returncode == 1
    assert run("--check-only", "--", "no-such-program").returncode == 127


def test_quiet_says_findings_only() -> None:
    assert run("-q", "--", "torchrun", "--nproc_per_node", "2", "train.py").stderr == b""
    said = run("-q", "--", *BAD.split()).stderr.decode().splitlines()
    assert [line.split(":")[0] for line in said] == ["<command line>", "dslint"]


def test_a_command_that_is_no_launch_is_started_with_a_word_about_it() -> None:
    done = run("--", "echo", "hello world")
    assert (done.returncode, done.stdout) == (0, b"hello world\n")
    assert done.stderr.decode() == "dslint: no launch of a training in `echo 'hello world'`: nothing is judged\n"


def test_a_list_of_a_hundred_thousand_words_is_handed_on_at_once() -> None:
    words = [str(number) for number in range(100_000)]
    done = run("--", "echo", *words)
    assert done.stdout.split() == [word.encode() for word in words]
    assert done.stderr == b"dslint: the command line is too long to be judged\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "run needs a command"),
        (["--check-only"], "run needs a command"),
        (["--chekc-only", "--", "true"], "did you mean `--check-only`?"),
        (["--time-limit", "soon", "--", "true"], "must be a number of seconds"),
        (["--select", "DSL3O9", "--", "true"], "unknown rule `DSL3O9`"),
    ],
)
def test_wrong_usage_starts_nothing(words: list[str], message: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_command_without_flags_of_dslint_needs_no_dashes() -> None:
    assert run("echo", "--", "-q").stdout == b"-- -q\n"


# What goes wrong in dslint


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("raise_", "internal error: ZeroDivisionError: a b; the command starts unchecked"),
        ("os._exit(0)", "the process that judges died; the command starts unchecked"),
        ("os.kill(os.getpid(), 11)", "the process that judges died; the command starts unchecked"),
        ("time.sleep(60)", "no answer in 4 seconds; the command starts unchecked"),
        ("os.close(0) or print('on standard output') or 1", "internal error: AttributeError"),
    ],
)
def test_no_failure_of_dslint_keeps_a_job_from_starting(patch: str, message: str) -> None:
    code = (
        "import os, sys, time\nimport dslint.runner.judging as judging, dslint.runner.watch as watch\n"
        "watch.PATIENCE = 4.0\n"
        "def judge(*_, **__):\n"
        + ("    raise ZeroDivisionError('a\\nb')\n" if patch == "raise_" else f"    return {patch}\n")
        + "judging.judge = judge\nfrom dslint.cli import main\nmain(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "run", "--", "sh", "-c", "cat; exit 5"]
    done = subprocess.run(command, input=b"in", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, b"in")
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_what_was_found_before_dslint_fails_counts() -> None:
    for patch, why in (("raise ValueError('x')", "internal error: ValueError: x"), ("os._exit(3)", "the process that")):
        code = (
            "import os, sys\nimport dslint.runner.judging as judging\nfirst = judging.judge\n"
            f"def judge(request, *, scripts):\n    if scripts:\n        {patch}\n"
            "    return first(request, scripts=False)\n"
            "judging.judge = judge\nfrom dslint.cli import main\nmain(sys.argv[1:])\n"
        )
        command = [sys.executable, "-c", code, "run", "--time-limit", "20", "--", *BAD.split()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (1, "")
        assert "DSL309" in done.stderr
        assert f"dslint: not judged, {why}" in done.stderr


def test_the_process_that_becomes_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys\nimport dslint.runner.execute as execute, dslint.runner.command as command\n"
        "command.become = lambda argv: print(sorted(m for m in sys.modules if m.startswith('dslint.')"
        " or m in ('rich', 'libcst', 'tree_sitter', 'packaging', 'jsonschema'))) or sys.exit(0)\n"
        "from dslint.cli import main\nmain(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "run", "-q", "--", "torchrun", "train.py"]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    rooms = {module.split(".")[1] for module in re.findall(r"'(dslint\.\w+)", loaded)}
    # Of the translations only the list of languages, for the option's choices; no catalogue.
    assert rooms == {"arguments", "cli", "core", "runner", "translate"}, loaded
    assert "dslint.translate." not in loaded
    assert not re.search(r"'(?:rich|libcst|tree_sitter|packaging|jsonschema)'", loaded)


def test_a_mistake_in_a_settings_file_keeps_no_job_from_starting() -> None:
    Path("dslint.toml").write_text("slect = []\n")
    done = run("--", "torchrun", "train.py")
    assert done.stdout == b"started\n"
    assert done.stderr.decode() == (
        "dslint: dslint.toml:1: unknown key `slect`; did you mean `select`?; the command starts unchecked\n"
    )
    assert run("--check-only", "--", "torchrun", "train.py").returncode == 2


def test_a_report_that_nobody_reads_keeps_no_job_from_starting() -> None:
    command = " ".join(f'"{word}"' for word in (*DSLINT, "run", "--", "torchrun", "train.py"))
    for redirection in ("2>&-", "2>/dev/full", "0<&- 2>&-"):
        done = subprocess.run(["bash", "-c", f"{command} {redirection}"], capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b"started\n"), redirection


# Several ranks


@pytest.mark.parametrize(
    "variables",
    [
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ],
)
def test_of_several_ranks_one_reports_and_all_stop(variables: tuple[str, ...]) -> None:
    said, codes = "", set()
    for rank in range(2):
        own = dict(zip(variables, (str(rank), "2", "0"), strict=True))
        done = run("--", *BAD.split(), env={**os.environ, **own})
        said += done.stderr.decode()
        codes.add(done.returncode)
    assert (said.count("DSL309"), codes) == (1, {1})


def test_a_rank_that_is_left_over_silences_nobody() -> None:
    done = run("--", *BAD.split(), env={**os.environ, "RANK": "3"})
    assert b"DSL309" in done.stderr


def test_tasks_of_a_stand_in_for_srun(project: Path) -> None:
    srun = project / "bin" / "srun"
    srun.write_text(
        "#!/bin/bash\n[ $1 = -n ] && n=$2 && shift 2\nfor i in $(seq 0 $((n-1))); do\n"
        "  SLURM_JOB_ID=7 SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_STEP_NUM_TASKS=$n SLURM_STEP_NUM_NODES=1"
        ' SLURM_NTASKS=$n SLURM_NNODES=1 "$@" &\ndone\nwait\n'
    )
    srun.chmod(0o755)
    # One write per task: the lines of three processes may be mixed otherwise (PYTHONUNBUFFERED writes them in parts).
    (project / "train.py").write_text("import os\n\nos.write(1, b'trained\\n')\n")
    done = subprocess.run(
        ["srun", "-n", "3", *DSLINT, "run", "--", "python", "train.py"], capture_output=True, timeout=90
    )
    assert done.stdout == b"trained\n" * 3
    assert done.stderr.decode().count("srun: 1 node x 3 processes = 3 ranks") == 1
    assert done.stderr.decode().count("the command starts") == 1
