"""A config that a script writes says the same as the file that the real programs make of it.

bash runs each script with the real ``sed``, ``jq``, ``envsubst`` and Python; the file must hold the config of the case,
which the real DeepSpeed judges as well (``harness/cases.py``). dslint reads the script alone, and must find what it
finds in the file.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_containers import cases

from dslint.core.finding import Finding
from dslint.engine.run import check_paths
from dslint.model.firstlook import may_write_config
from dslint.settings import make_settings

LEAST = 80
# The file that every script writes, and what it makes it of.
FILE, TEMPLATE = "ds_config.json", "ds_config.in"
Script = Callable[[dict[str, Any]], tuple[str, str]]


def _leaves(config: dict[str, Any], around: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for key, value in config.items():
        at = (*around, key)
        found += _leaves(value, at) if isinstance(value, dict) and value else [(at, value)]
    return found


def _with(config: dict[str, Any], change: Callable[[int, Any], str]) -> str:
    """The config as text, with what ``change`` makes of each value."""
    leaves = _leaves(config)
    marked: dict[str, Any] = {}
    for number, (path, _) in enumerate(leaves):
        at = marked
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = f"\0{number}\0"
    text = json.dumps(marked, indent=1)
    return re.sub(r'"\\u0000(\d+)\\u0000"', lambda m: change(int(m[1]), leaves[int(m[1])][1]), text)


def _replaced(value: Any) -> str:
    return re.sub(r"([\\/&])", r"\\\1", json.dumps(value))


def _sed(config: dict[str, Any], how: str) -> tuple[str, str]:
    steps = [f"-e {shlex.quote(f's/@V{n}@/{_replaced(v)}/g')}" for n, (_, v) in enumerate(_leaves(config))]
    return how.format(" ".join(steps)), _with(config, lambda n, _: f"@V{n}@")


def _envsubst(config: dict[str, Any]) -> tuple[str, str]:
    lines = [f"export V{n}={shlex.quote(json.dumps(v))}" for n, (_, v) in enumerate(_leaves(config))]
    return "\n".join([*lines, f"envsubst < {TEMPLATE} > {FILE}"]), _with(config, lambda n, _: f"${{V{n}}}")


def _path(keys: tuple[str, ...]) -> str:
    return "." + ".".join(key if key.isidentifier() else f'"{key}"' for key in keys)


def _jq(config: dict[str, Any], how: str) -> tuple[str, str]:
    """Every second member by the filter; half of them as variables."""
    leaves = _leaves(config)
    kept: dict[str, Any] = json.loads(json.dumps(config))
    steps, variables = [], ""
    for number, (path, value) in enumerate(leaves):
        if number % 2:
            continue
        at = kept
        for key in path[:-1]:
            at = at[key]
        at.pop(path[-1])
        if number % 4:
            variables += f" --argjson v{number} {shlex.quote(json.dumps(value))}"
            steps.append(f"{_path(path)} = $v{number}")
        else:
            steps.append(f"{_path(path)} = {json.dumps(value)}")
    return how.format(f"{variables} {shlex.quote(' | '.join(steps) or '.')}"), json.dumps(kept, indent=1)


def _python(config: dict[str, Any]) -> str:
    return f"import json\nwith open({FILE!r}, 'w') as f:\n    json.dump({config!r}, f)\n"


SCRIPTS: dict[str, Script] = {
    "sed": lambda config: _sed(config, f"sed {{}} {TEMPLATE} > {FILE}"),
    "sed in place": lambda config: _sed(config, f"cp {TEMPLATE} {FILE}\nsed -i {{}} {FILE}"),
    "sed behind cat": lambda config: _sed(config, f"cat {TEMPLATE} | sed {{}} | tee {FILE} > /dev/null"),
    "envsubst": _envsubst,
    "jq": lambda config: _jq(config, f"jq {{}} {TEMPLATE} > {FILE}"),
    "jq and mv": lambda config: _jq(config, f"jq {{}} {TEMPLATE} > new.json && mv new.json {FILE}"),
    "echo": lambda config: (f"echo {shlex.quote(json.dumps(config))} > {FILE}", ""),
    "printf": lambda config: (f"DS={shlex.quote(json.dumps(config))}\nprintf '%s\\n' \"$DS\" > {FILE}", ""),
    "python heredoc": lambda config: (f"python - <<'EOF'\n{_python(config)}EOF", ""),
    "python -c": lambda config: (f"python -c {shlex.quote(_python(config))}", ""),
}


def written(folder: Path, script: str, template: str) -> Any:
    """What the real programs write."""
    (folder / "make.sh").write_text(f"{script}\n", encoding="utf-8")
    if template:
        (folder / TEMPLATE).write_text(template, encoding="utf-8")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    command = f'PATH="{programs}:$PATH"; . ./make.sh'
    subprocess.run(["bash", "-c", command], cwd=folder, check=True, timeout=60, capture_output=True)
    (programs / "python").unlink()
    return json.loads((folder / FILE).read_text(encoding="utf-8"))


def told(folder: Path, world: int) -> dict[str, list[tuple[str, str, str]]]:
    """The findings below a folder, by the name of the folder of each case."""
    settings = make_settings({"world-size": world, "no-cache": True, "jobs": 1})
    found: dict[str, list[tuple[str, str, str]]] = {}
    for finding in check_paths([str(folder)], settings).findings:
        name = Path(finding.location.path).relative_to(folder).parts[0]
        found.setdefault(name, []).append(_row(finding))
    return {name: sorted(rows) for name, rows in found.items()}


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.code, finding.pointer or "", finding.severity.name


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.skipif(shutil.which("jq") is None or shutil.which("envsubst") is None, reason="no jq or envsubst")
def test_a_written_config_says_what_its_file_says(name: str, tmp_path: Path, full: bool) -> None:
    chosen = cases(full)[:: 1 if full else 4]
    compared, loud, wrong = 0, 0, []
    for world in sorted({case.world for case in chosen}):
        scripts, files = tmp_path / f"scripts{world}", tmp_path / f"files{world}"
        held = {}
        for number, case in enumerate(c for c in chosen if c.world == world):
            config = json.loads(case.text)
            script, template = SCRIPTS[name](config)
            if not may_write_config(script.encode()) and not may_write_config(template.encode()):
                continue
            here, there = scripts / f"c{number}", files / f"c{number}"
            here.mkdir(parents=True)
            there.mkdir(parents=True)
            assert written(here, script, template) == config, script
            (here / FILE).rename(there / FILE)
            held[f"c{number}"] = script
        expected, found = told(files, world), told(scripts, world)
        for case_name, script in held.items():
            compared += 1
            loud += case_name in expected
            if expected.get(case_name) != found.get(case_name):
                wrong.append((script, expected.get(case_name), found.get(case_name)))
    print(name, compared, loud)
    assert compared >= LEAST
    assert loud >= compared // 4
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n\n".join("\n".join(map(str, entry)) for entry in wrong[:3])
