"""Bad input through the real command: one clear line, the right exit code, and the rest of the run goes on.

Every folder here holds a sound script with a defect besides the bad file: its finding must be reported whatever
stands next to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DEFECT = """\
import torch.distributed as dist

if dist.get_rank() == 0:
    dist.barrier()
"""
# Words without which no script rule would look at a file.
MARKED = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
# The same for rules that visit the tree of LibCST.
VISITED = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--shuffle', type=bool)\n"
LAUNCH = "torchrun --nproc_per_node 8 train.py"
DEEP = 10_000


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "defect.py").write_text(DEFECT)
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "DSLINT_CACHE_DIR": str(folder.parent / "cache"),
        "PYTHONUTF8": "1",
    }


def dslint(folder: Path, *arguments: str | bytes, stdin: bytes = b"", timeout: float = 60) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; no bad input may show a traceback or end the process."""
    done = forked.dslint(folder, *arguments, environment=environment(folder), stdin=stdin, timeout=timeout)
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in out + err
    assert "internal error" not in err, err
    assert "DSL901" not in out, out
    assert done.returncode in (0, 1, 2), f"ended by signal {-done.returncode}"
    return done.returncode, out, err


def check(folder: Path, *names: str | bytes) -> str:
    """The findings of a run over the folder, or over the named files, that also reports the sound script."""
    code, out, err = dslint(folder, *(names or (".",)), *(["defect.py"] if names else []))
    assert "defect.py:4:5: DSL201" in out, out + err
    assert code == 1
    return out


def line_of(out: str, name: str, code: str) -> str:
    lines = [line for line in out.splitlines() if line.startswith(f"{name}:") and f" {code} " in line]
    assert len(lines) == 1, out
    return lines[0]


UNREADABLE_BYTES = {
    "binary.py": b"\x7fELF\0\0\0" + MARKED.encode(),
    "binary.json": bytes(range(256)) * 8,
    "binary.sh": b"\x7fELF\0\0" + LAUNCH.encode(),
    "binary.yaml": b"\0\1\2distributed_type: DEEPSPEED",
    "binary.ipynb": b"\0" + MARKED.encode(),
    "binary.md": b"\0```bash\n" + LAUNCH.encode() + b"\n```\n",
    "late_nul.py": MARKED.encode() + b"#" * 20_000 + b"\0",
    "latin.py": MARKED.encode() + b"# caf\xe9\n",
    "latin.json": b'{"train_batch_size": 8, "name": "caf\xe9"}',
    "latin.sh": b"# caf\xe9\n" + LAUNCH.encode(),
    "wide.py": MARKED.encode("utf-16"),
    "wide.json": '{"train_batch_size": 8}'.encode("utf-16"),
    "surrogate.json": b'{"train_batch_size": 8, "k": "\xed\xa0\x80"}',
}


@pytest.mark.parametrize("name", UNREADABLE_BYTES)
def test_bytes_that_are_no_utf8_text_are_named_with_the_reason(project: Path, name: str) -> None:
    (project / name).write_bytes(UNREADABLE_BYTES[name])
    line = line_of(check(project, name), name, "DSL902")
    assert "it is binary" in line or "it is not UTF-8" in line


def test_bytes_that_are_no_text_in_a_folder_do_not_stop_the_walk(project: Path) -> None:
    for name, raw in UNREADABLE_BYTES.items():
        (project / name).write_bytes(raw)
    (project / "ds_config.json").write_bytes(UNREADABLE_BYTES["latin.json"])
    line_of(check(project), "ds_config.json", "DSL902")


NESTED = {
    "ds_lists.json": '{"train_batch_size": 8, "zero_optimization": ' + "[" * DEEP + "]" * DEEP + "}",
    "ds_objects.json": '{"train_batch_size": 8, "zero_optimization": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
    "ds_unclosed.json": '{"train_batch_size": 8, "zero_optimization": ' + '{"a":[' * DEEP,
    "flow.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nx: " + "[" * DEEP + "]" * DEEP,
    "block.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
    + "".join(" " * i + "a:\n" for i in range(2_000)),
    "dashes.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nx:\n  " + "- " * DEEP + "1\n",
    "parentheses.py": MARKED + "x = " + "(" * DEEP + ")" * DEEP + "\n",
    "lists.py": MARKED + "x = " + "[" * DEEP + "]" * DEEP + "\n",
    "minus.py": MARKED + "x = " + "-" * DEEP + "1\n",
    "sum.py": MARKED + "x = " + "+".join(["1"] * DEEP) + "\n",
    "calls.py": MARKED + "x = a" + ".b()" * DEEP + "\n",
    "elif.py": MARKED + "if x:\n    pass\n" + "elif y:\n    pass\n" * DEEP,
    "blocks.py": MARKED + "".join(" " * i + "if x:\n" for i in range(500)) + " " * 500 + "pass\n",
    "substitutions.sh": LAUNCH + " " + "$(" * DEEP + ")" * DEEP + "\n",
    "defaults.sh": LAUNCH + " " + "${a:-" * DEEP + "}" * DEEP + "\n",
    "ifs.sh": "if true; then\n" * DEEP + LAUNCH + "\n" + "fi\n" * DEEP,
    "subshells.sh": "(" * DEEP + LAUNCH + ")" * DEEP + "\n",
    "and.sh": " && ".join(["true"] * DEEP + [LAUNCH]) + "\n",
    "pipe.sh": " | ".join([LAUNCH] + ["cat"] * DEEP) + "\n",
    "arithmetic.sh": "N=$((" + "(" * DEEP + "1" + ")" * DEEP + f"))\n{LAUNCH} --n $N\n",
    "bash_c.sh": "bash -c '" * 50 + LAUNCH + "\n",
    "cells.ipynb": '{"torch.distributed barrier": 1, "cells": ' + "[" * DEEP + "]" * DEEP + "}",
    "quotes.md": ">" * DEEP + " ```bash\n" + LAUNCH + "\n```\n",
}


@pytest.mark.parametrize("name", NESTED)
def test_ten_thousand_levels_of_nesting(project: Path, name: str) -> None:
    (project / name).write_text(NESTED[name])
    out = check(project)
    # Blocks of this depth would crash the YAML parser: the file is not read, and nobody knows what it is for.
    if name.endswith(".json") or name == "flow.yaml":
        assert "nested" in line_of(out, name, "DSL900")


_OPEN = "x = 1 2\n"  # Python stops here, and what follows is left to LibCST
CHAINS = {
    "calls": "x = f" + "()" * 5_000,
    "methods": "x = a" + ".b()" * 5_000,
    "subscripts": "x = a" + "[0]" * 5_000,
    "mixed": "x = a" + ".b()[0]" * 100_000,
    "conditionals": "x = " + "a if b else " * 5_000 + "1",
    "lambdas": "x = " + "lambda: " * 5_000 + "1",
    "defaults": "x = " + "lambda x=(" * 5_000 + "1" + "): 1" * 5_000,
    "minus": "x = " + "- " * 5_000 + "1",
    "sum_of_calls": "x = " + "+".join(["f(a)[0].c"] * 5_000),
    "decorator": "@a" + ".b()" * 5_000 + "\ndef f(): pass",
    "elif": "if x:\n    pass\n" + "elif y:\n    pass\n" * 5_000,
    "strings": "x = (" + " ".join(["f'{a}'"] * 5_000) + ")",
    "import": "import a" + ".b" * 5_000,
    "mapping_pattern": "match x:\n  case " + "{1:" * 25 + "a" + "}" * 25 + ": pass",
    "sequence_pattern": "match x:\n  case " + "[" * 100 + "]" * 100 + ": pass",
    "group_pattern": "match x:\n  case " + "(" * 100 + "a" + ")" * 100 + ": pass",
    "format_spec": "x = f'" + "{a:" * 5_000 + "}" * 5_000 + "'",
    "brackets_after_an_error": _OPEN + "x = " + "[" * 5_000 + "]" * 5_000,
    "brackets_with_an_error": "x = " + "f(" * 190 + "1 2" + ")" * 190,
    "calls_after_an_error": _OPEN + "x = a" + ".b()" * 5_000,
    "elif_after_an_error": _OPEN + "if x:\n    pass\n" + "elif y:\n    pass\n" * 20_000,
    "pattern_after_an_error": _OPEN + "match x:\n  case " + "{1:" * 25 + "a" + "}" * 25 + ": pass",
    "strings_after_an_error": _OPEN + "x = f'" + "{a:" * 5_000 + "}" * 5_000 + "'",
}


def test_shapes_that_the_parsers_would_not_survive(project: Path) -> None:
    for name, text in CHAINS.items():
        (project / f"{name}.py").write_text(f"{VISITED}{text}\n")
    # Read one after the other in one process: about 3 s, of which most is the start.
    code, out, err = dslint(project, "-j", "1", ".", timeout=60)
    assert (code, err.count("error:")) == (1, 0), err
    assert "defect.py:4:5: DSL201" in out
    for name in CHAINS:
        line = line_of(out, f"{name}.py", "DSL900")
        assert "nested too deeply" in line or "syntax error" in line
        # The place is not the begin of the file, and no number of a line that the file does not have.
        assert 4 <= int(line.split(":")[1]) <= 4 + CHAINS[name].count("\n"), line


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
@pytest.mark.parametrize(
    "part",
    ["dslint.parse.python.parse_script", "dslint.rules.walk.run_script_rules", "dslint.engine.runs.Analysis.script"],
)
def test_a_limit_of_the_interpreter_ends_one_file_and_not_the_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, part: str, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error

    (project / "ds_config.json").write_text('{"train_batch_size": 8, "fp17": {}}')
    (project / "deep.py").write_text(VISITED + MARKED + "x = a" + ".b()" * 150 + "\n")
    monkeypatch.setattr(part, fail)
    found = judged(project, monkeypatch)
    assert "deep.py DSL900 the code is nested too deeply to be read" in found
    assert any(line.startswith("ds_config.json DSL1") for line in found)


def test_fifty_megabytes_are_not_read(project: Path) -> None:
    with open(project / "ds_config.json", "w") as handle:
        handle.write('{"train_batch_size": 8, "x": "' + "x" * 50_000_000 + '"}')
    with open(project / "big.py", "w") as handle:
        handle.write(MARKED * 800_000)
    line_of(check(project), "big.py", "DSL902")
    assert "50 MB" in line_of(check(project, "ds_config.json"), "ds_config.json", "DSL902")


def test_one_very_long_line(project: Path) -> None:
    (project / "long.py").write_text(MARKED + "x = '" + "x" * 3_000_000 + "'\n")
    (project / "long.sh").write_text(LAUNCH + " --x y" * 100_000 + "\n")
    (project / "ds_config.json").write_text('{"train_batch_size": 8, "fp17": "' + "x" * 3_000_000 + '"}')
    out = check(project)
    line_of(out, "long.py", "DSL201")
    assert max(map(len, out.splitlines())) < 1_000


def test_links_that_lead_nowhere_or_in_a_circle(project: Path) -> None:
    (project / "nowhere.py").symlink_to("gone.py")
    (project / "self.py").symlink_to("self.py")
    (project / "here").symlink_to(".")
    (project / "sub").mkdir()
    (project / "sub" / "up").symlink_to("..")
    (project / "sub" / "ds_config.json").symlink_to("../sub")
    out = check(project)
    assert out.count("DSL201") == 1, "a folder behind a link is walked once, where it stands"


@pytest.mark.parametrize("name", ["nowhere.py", "self.py", "gone.py", "gone/", "defect.py/x.py", "x" * 5_000, "a\nb"])
def test_a_path_that_does_not_exist_is_an_error_and_the_others_are_judged(project: Path, name: str) -> None:
    (project / "nowhere.py").symlink_to("gone.py")
    (project / "self.py").symlink_to("self.py")
    code, out, err = dslint(project, name, "defect.py")
    assert code == 2
    assert "DSL201" in out
    assert len([line for line in err.splitlines() if line.startswith("dslint: ")]) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "name", ["pipe.py", "ds_config.json", "pipe.sh", "requirements.txt", "pyproject.toml", "dslint.toml", ".gitignore"]
)
def test_a_named_pipe_is_never_opened(project: Path, name: str) -> None:
    (project / ".git").mkdir()
    os.mkfifo(project / name)
    check(project)
    if name.startswith(("pipe", "ds_")):
        assert "not a regular file" in line_of(check(project, name), name, "DSL902")


def test_a_device_is_never_read(project: Path) -> None:
    code, out, _ = dslint(project, "/dev/zero", "defect.py")
    assert code == 1
    line_of(out, "/dev/zero", "DSL902")


def test_a_folder_with_the_name_of_a_file_is_walked(project: Path) -> None:
    for name in ("train.py", "ds_config.json", "run.sh", "pyproject.toml", "requirements.txt", ".gitignore"):
        (project / name).mkdir()
    (project / "train.py" / "inner.py").write_text(DEFECT)
    line_of(check(project), "train.py/inner.py", "DSL201")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_files_and_folders_without_permission(project: Path) -> None:
    (project / "secret.py").write_text(DEFECT)
    (project / "secret.py").chmod(0)
    (project / "closed").mkdir(mode=0)
    try:
        out = check(project)
        assert "Permission denied" in line_of(out, "secret.py", "DSL902")
        assert "Permission denied" in line_of(out, "closed", "DSL902")
    finally:
        (project / "closed").chmod(0o700)


def judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``path CODE message`` of a run inside this process, where the file system can be made to fail."""
    from dslint.engine.run import check_paths
    from dslint.settings import make_settings

    monkeypatch.chdir(folder)
    result = check_paths(["."], make_settings({"no-cache": True}, folder))
    return [f"{f.location.path} {f.code} {f.message}" for f in result.findings]


def test_a_folder_and_a_file_that_refuse_to_be_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "closed").mkdir()
    (project / "secret.py").write_text(DEFECT)
    real_scandir, real_open = os.scandir, open

    def scandir(path: str = ".") -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real_scandir(path)

    def opened(path: str, *more: object, **options: object) -> object:
        if str(path).endswith("secret.py"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *more, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("os.scandir", scandir)
    monkeypatch.setattr("builtins.open", opened)
    found = judged(project, monkeypatch)
    assert "closed DSL902 not checked: the folder cannot be read: Permission denied" in found
    assert "secret.py DSL902 not checked: Permission denied" in found
    assert any(line.startswith("defect.py DSL201") for line in found)


@pytest.mark.parametrize("name", ["gone.py", "gone.sh", "ds_config.json", "gone.ipynb"])
def test_a_file_that_vanishes_between_listing_and_reading(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (project / name).write_text(MARKED)
    from dslint.engine import run as engine

    real = engine.discover

    def discover(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        assert name in [c.path for c in found.candidates]
        (project / name).unlink()
        return found

    monkeypatch.setattr(engine, "discover", discover)
    found = judged(project, monkeypatch)
    assert any(line.startswith("defect.py DSL201") for line in found)
    assert not any(line.startswith(name) and "No such file" not in line for line in found)


def test_byte_order_mark_and_line_ends_do_not_move_findings(project: Path) -> None:
    (project / "bom.py").write_bytes(b"\xef\xbb\xbf" + DEFECT.encode())
    (project / "crlf.py").write_bytes(DEFECT.replace("\n", "\r\n").encode())
    (project / "no_end.py").write_bytes(DEFECT.rstrip().encode())
    (project / "form_feed.py").write_bytes(("# a\f b\x0b c\u2028 d\x85\n" + DEFECT).encode())
    out = check(project)
    for name, line in (("bom.py", 4), ("crlf.py", 4), ("no_end.py", 4), ("form_feed.py", 5)):
        assert f"{name}:{line}:5: DSL201" in out, out


def test_fixes_keep_the_byte_order_mark_and_the_line_ends(project: Path) -> None:
    text = "import torch.distributed as dist\n\ndist.barrier()  # noqa: DSL252\n"
    (project / "bom.py").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    dslint(project, "--fix", "bom.py")
    after = text.replace("  # noqa: DSL252", "").replace("\n", "\r\n")
    assert (project / "bom.py").read_bytes() == b"\xef\xbb\xbf" + after.encode()


def test_empty_files(project: Path) -> None:
    for name in ("empty.py", "empty.json", "empty.sh", "empty.yaml", "empty.ipynb", "empty.md", "plain"):
        (project / name).write_bytes(b"")
    (project / "only_bom.py").write_bytes(b"\xef\xbb\xbf")
    (project / "blank.py").write_bytes(b"\n" * 10_000)
    check(project)
    check(project, "empty.py", "empty.json", "empty.sh", "empty.yaml", "empty.ipynb", "empty.md", "plain")


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [{"cell_type": "code", "source": ["import torch.distributed as dist\\n", "dist.barrier(',
        '["import torch.distributed as dist", "if rank == 0:", "dist.barrier()"]',
        '{"cells": "import torch.distributed as dist; if dist.get_rank() == 0: dist.barrier()"}',
        '{"cells": [3, null, {"cell_type": "code", "source": {"dist.barrier()": "get_rank() torch.distributed"}}]}',
        '{"cells": [{"cell_type": "code", "source": ["if dist.get_rank() == 0:\\n", "  dist.barrier(", null]}],'
        ' "x": "torch.distributed"}',
        "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n",
    ],
)
def test_broken_notebooks(project: Path, text: str) -> None:
    (project / "broken.ipynb").write_text(text)
    check(project)


@pytest.mark.parametrize("text", ['{"cells": [ {"x": "torch.distributed"', '{"cells": 1, "x": "torch.distributed"}'])
def test_a_broken_notebook_that_is_named_is_said_to_be_unread(project: Path, text: str) -> None:
    (project / "broken.ipynb").write_text(text)
    line_of(check(project, "broken.ipynb"), "broken.ipynb", "DSL900")


def test_syntax_errors_are_findings_at_their_place(project: Path) -> None:
    (project / "broken.py").write_text(
        "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier(\n"
    )
    (project / "ds_config.json").write_text('{"train_batch_size": 8,\n "fp16": {"enabled": tru}\n')
    (project / "broken.sh").write_text(f"if true; then\n{LAUNCH} 'unclosed\n")
    out = check(project)
    line_of(out, "broken.py", "DSL900")
    assert any(line.startswith("ds_config.json:2:") and "DSL900" in line for line in out.splitlines()), out


def test_lone_surrogates_in_strings(project: Path) -> None:
    (project / "escaped.py").write_text('x = "\\ud800"\n' + DEFECT)
    (project / "ds_config.json").write_text('{"train_batch_size": 8, "\\ud800": "\\udfff"}')
    for form in ("concise", "full", "json", "github", "sarif"):
        _, out, _ = dslint(project, "--output-format", form, ".")
        assert "escaped.py" in out
        if form in ("json", "sarif"):
            json.loads(out)


ODD_NAMES = [
    b"new\nline.py",
    b"sp ace.py",
    "\u00fcn\u00ef\U0001f600.py".encode(),
    b"quo'te\".py",
    b"%0A,::.py",
    b"-.py",
]


@pytest.mark.parametrize("form", ["concise", "full", "json", "github", "sarif"])
def test_odd_file_names(project: Path, form: str) -> None:
    names = [*ODD_NAMES]
    if sys.platform == "linux":
        names.append(b"bad\xff.py")
    for name in names:
        (Path(os.fsdecode(project)) / os.fsdecode(name)).write_text(DEFECT)
    code, out, _ = dslint(project, "--output-format", form, ".")
    assert code == 1
    if form == "json":
        assert len([f for f in json.loads(out)["findings"] if f["code"] == "DSL201"]) == len(names) + 1
    elif form == "sarif":
        results = json.loads(out)["runs"][0]["results"]
        assert len([r for r in results if r["ruleId"] == "DSL201"]) == len(names) + 1
    elif form != "full":
        assert len([line for line in out.splitlines() if "DSL201" in line]) == len(names) + 1
        assert not any(line.startswith("line.py") for line in out.splitlines())


def test_odd_file_names_on_the_command_line(project: Path) -> None:
    for name in ODD_NAMES[:3]:
        (project / os.fsdecode(name)).write_text(DEFECT)
    code, out, _ = dslint(project, *ODD_NAMES[:3])
    assert (code, out.count("DSL201")) == (1, 3)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"\0", MARKED.encode() + b"# \xe9\n", MARKED.encode() + b"(" * DEEP])
@pytest.mark.parametrize("name", ["train.py", "ds_config.json", "run.sh", None])
def test_bad_standard_input(project: Path, raw: bytes, name: str | None) -> None:
    code, out, err = dslint(project, "-", *(["--stdin-filename", name] if name else []), stdin=raw)
    assert "No such file" not in err
    if b"\xe9" in raw and name == "train.py":
        assert code == 1
        assert "not UTF-8" in line_of(out, "train.py", "DSL902")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", b"[tool.dslint\n"),
        ("pyproject.toml", b"[tool.dslint]\nselekt = 1\n"),
        ("dslint.toml", b"\xff\xfe"),
        ("dslint.toml", b"x = " + b"[" * DEEP),
    ],
)
def test_broken_settings_are_one_line_and_exit_code_two(project: Path, name: str, text: bytes) -> None:
    (project / name).write_bytes(text)
    code, out, err = dslint(project, ".")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"dslint: {name}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", b'[project\nname = "x"\n'),
        ("requirements.txt", b"\xff\xfe\0"),
        ("requirements.txt", b"deepspeed==\n-r requirements.txt\n==\n;;;\ndeepspeed>=zero\n"),
        ("setup.py", b"setup(install_requires=["),
        ("environment.yml", b"dependencies:\n" + b"- " * DEEP),
        ("poetry.lock", b"[[package]\nname = deepspeed"),
        ("uv.lock", b"[" * DEEP),
        (".gitignore", b"\xff\0[[[\n!!\n\\\n"),
    ],
)
def test_broken_project_files_are_passed_over(project: Path, name: str, text: bytes) -> None:
    (project / ".git").mkdir()
    (project / name).write_bytes(text)
    (project / "ds_config.json").write_text('{"train_batch_size": 8}')
    check(project)


def run_with(folder: Path, before: Callable[[], None] | None = None, **streams: object) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-m", "dslint", "."],
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        preexec_fn=before,
        timeout=60,
        **streams,  # type: ignore[call-overload]
    )
    return process.returncode, process.stderr.decode()


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_closed_standard_stream_is_no_crash(project: Path, descriptor: int) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "dslint", "-" if descriptor == 0 else "."],
        cwd=project,
        env=environment(project),
        stdout=None if descriptor == 1 else subprocess.PIPE,
        stderr=None if descriptor == 2 else subprocess.PIPE,
        preexec_fn=lambda: os.close(descriptor),
        timeout=60,
    )
    assert process.returncode == (0 if descriptor == 0 else 1)
    assert b"rror" not in (process.stderr or b"").replace(b"1 error", b"")


def test_report_into_a_folder_that_does_not_exist(project: Path) -> None:
    code, _, err = dslint(project, "-o", "gone/report.txt", ".")
    assert (code, err) == (2, "dslint: gone/report.txt: No such file or directory\n")


def test_a_closed_pipe_ends_the_report_without_a_word(project: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code, err = run_with(project, stdout=writer)
    finally:
        os.close(writer)
    assert code in (0, 1)
    assert "Traceback" not in err
    assert "rror" not in err.replace("1 error", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said_and_is_no_success(project: Path, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)  # without it, Python writes again what is left at exit
    with open("/dev/full", "w") as full:
        code, err = run_with(project, stdout=full)
    assert code == 2
    assert "Traceback" not in err
    assert "No space left on device" in err
    assert "internal error" not in err


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_interrupt_exits_with_130_and_without_a_traceback(project: Path) -> None:
    # Waiting for standard input is the one place where the moment of the signal is under control.
    program = (
        "import sys, dslint.cli\n"
        "sys.stderr.write('ready\\n'); sys.stderr.flush()\n"
        "dslint.cli.main(['-', '--stdin-filename', 'x.py'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=project,
        env=environment(project),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err


def _parallel_run(project: Path, files: int = 120, lines: int = 400) -> tuple[subprocess.Popen[str], list[int]]:
    """A run with two workers in the middle of its work, in a process group of its own; (process, workers)."""
    body = MARKED + "def f():\n    x = [dist.get_rank() for _ in range(8)]\n" * lines
    for number in range(files):
        (project / f"train_{number}.py").write_text(body + f"# {number}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "dslint", "-j", "2", "--no-cache", "."],
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not children.read_text().strip():
        time.sleep(0.02)
    time.sleep(0.3)
    assert process.poll() is None, "the run ended before it could be interrupted"
    return process, [int(pid) for pid in children.read_text().split()]


def _gone(process: subprocess.Popen[str], seconds: float = 10) -> bool:
    """No process of the group is left (a process that nobody has reaped yet counts as gone)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == process.pid and fields[0] != "Z":
                alive.append(name)
        if not alive:
            return True
        time.sleep(0.05)
    return False


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")


@needs_proc
@pytest.mark.parametrize("whole_group", [True, False])
def test_interrupt_of_a_run_with_workers_leaves_no_traceback_and_no_process(project: Path, whole_group: bool) -> None:
    process, _ = _parallel_run(project)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert _gone(process)


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_die_with_their_parent(project: Path, number: signal.Signals) -> None:
    process, _ = _parallel_run(project)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert _gone(process)


@needs_proc
def test_a_killed_worker_costs_no_finding(project: Path) -> None:
    process, workers = _parallel_run(project, 40, 200)
    os.kill(workers[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err
    assert process.returncode == 1
    expected = subprocess.run(
        [sys.executable, "-m", "dslint", "-j", "1", "--no-cache", "."],
        cwd=project, env=environment(project), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert out == expected.stdout
    assert _gone(process)


def test_a_file_that_kills_its_worker_is_named_and_the_others_are_judged(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dslint.engine import scripts
    from dslint.model.context import Context

    def judged(_: object, job: scripts.Job) -> scripts.Judged:
        if job.path == "bad.py":
            os._exit(139)
        return scripts.Judged([])

    monkeypatch.setattr(scripts.Judge, "judged", judged)
    names = ["bad.py", *(f"good_{number}.py" for number in range(scripts.POOL_THRESHOLD))]
    jobs = [scripts.Job(name, b"x = 1\n" * 40_000, "script", ("DSL201",), Context()) for name in names]
    with scripts.ScriptStage(jobs, None, 2) as stage:
        found = stage.findings()
    assert [(f.location.path, f.code) for f in found] == [("bad.py", "DSL901")]
    assert "died" in found[0].message


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ACCELERATE + "deepspeed_config:\n  zero_stage: [3\nnum_processes: 8\n", 4),
        (ACCELERATE + "deepspeed_config:\n\tzero_stage: 3\nnum_processes: 8\n", 4),
        (ACCELERATE + 'mixed_precision: "bf16\nnum_processes: 8\n', 3),
        ("deepspeed_config: {zero_stage: 3\n" + ACCELERATE + "num_processes: 8\n", 1),
    ],
)
def test_a_broken_accelerate_config_is_a_finding_at_its_place(project: Path, text: str, line: int) -> None:
    (project / "accelerate.yaml").write_text(text)
    code, out, _ = dslint(project, "accelerate.yaml")
    assert code == 1
    assert f"accelerate.yaml:{line}:" in out
    assert "DSL900" in out


def test_other_broken_yaml_is_left_alone(project: Path) -> None:
    (project / "workflow.yaml").write_text("on: [push\njobs:\n  build: {\n")
    assert dslint(project, "workflow.yaml")[:2] == (0, "")


def test_legal_python_that_libcst_refuses_is_a_note_and_still_interpreted(project: Path) -> None:
    (project / "mixed.py").write_text(VISITED + MARKED + "def f(x):\n    if x:\n\t    y = 1\n    return 2\n")
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "--no-cache", "--output-format", "json", "mixed.py"],
        cwd=project,
        capture_output=True,
        check=False,
    )
    found = json.loads(done.stdout)["findings"]
    assert [(f["code"], f["severity"]) for f in found] == [("DSL902", "info"), ("DSL201", "error")]
    assert found[0]["message"].startswith("checked in part: Python accepts this file but LibCST does not")
    assert done.returncode == 1


def test_a_named_script_that_does_not_parse_is_said_also_where_no_rule_would_look(project: Path) -> None:
    (project / "train.py").write_text("import torch\nif x\n    pass\n")
    (project / "fine.py").write_text("import torch\nif x:\n    pass\n")
    (project / "other.py").write_text("if x\n    pass\n")
    cache = ("--cache-dir", "cache")
    for _ in range(2):  # then from the cache, in which the run over the folder must not be taken for the other
        _, out, _ = dslint(project, *cache, ".")
        assert "train.py" not in out
        code, out, _ = dslint(project, *cache, "train.py", "fine.py", "other.py")
        assert (code, [line.split(" syntax")[0] for line in out.splitlines()]) == (1, ["train.py:2:5: DSL900 error:"])
    assert dslint(project, "--ignore", "DSL900", "train.py")[0] == 0
