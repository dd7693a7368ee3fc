"""A config says the same in every file that can hold it: what dslint finds in a JSON file, it finds in each container.

The configs are those that go before the real DeepSpeed (``harness/cases.py``), so that its verdict on the JSON file
holds for the container as well. Compared are the code, the pointer and the severity of every finding, and what stands
in the file at its place.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.cases import Case, drawn, seeded

from dslint.core.finding import Finding
from dslint.core.source import Span
from dslint.engine.run import check_paths
from dslint.model.deepspeed.detect import may_be_section
from dslint.model.firstlook import may_hold_config, may_hold_section
from dslint.python.libraries import libraries
from dslint.settings import make_settings

# The containers of a run are compared with this many configs at least.
LEAST = 100
_HYDRA = {"defaults": ["_self_"], "model": {"_target_": "pkg.Net", "width": 64}}
_SAT = {"args": {"mode": "finetune", "train_iters": 100}, "data": {"target": "data.Set"}}
_IMPORT = "from lightning.pytorch.strategies import DeepSpeedStrategy\n\n"
_LIGHTNING = {"class_path": "lightning.pytorch.strategies.DeepSpeedStrategy"}


@dataclass(frozen=True, slots=True)
class Container:
    """How a config is written into a file of a program, and into the one that says the same.

    ``consumer``: who reads it there, as ``--consumer`` says it of the twin.
    """

    suffix: str
    write: Callable[[dict[str, Any]], str]
    consumer: str = ""
    twin: Callable[[dict[str, Any]], str] = lambda config: json.dumps(config, indent=2)
    twin_suffix: str = "json"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes a text that may be a number in quotes; without them PyYAML and OmegaConf read it differently."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if re.fullmatch(r"[-+.\d]+[eE][-+]?\d+", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def _dump(data: Any, **options: Any) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **options)
    return f"# read by hand\n{text}"


def _interpolated(config: dict[str, Any]) -> str:
    values: dict[str, Any] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: moved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [moved(inner) for inner in value]
        values[f"v{len(values)}"] = value
        return f"${{values.v{len(values) - 1}}}"

    section = {key: moved(value) for key, value in config.items()}
    return _dump({"values": values, "trainer": {"ds_config": section}})


def _flow(config: dict[str, Any]) -> str:
    """The whole section in braces, with a comment, so that it is YAML alone."""
    text = _dump(config, default_flow_style=True, width=10_000).partition("\n")[2]
    return f"seed: 1\ndeepspeed: {text}# the end\n"


def _members(config: dict[str, Any]) -> dict[str, Any]:
    """What a config says in keys that the strategy of mmengine takes."""
    _, members = libraries().registered_configs["DeepSpeedStrategy"]
    return {key: value for key, value in config.items() if key in members}


def _mmengine(config: dict[str, Any]) -> str:
    members = "".join(f"    {key}={value!r},\n" for key, value in _members(config).items())
    return f"strategy = dict(\n    type='DeepSpeedStrategy',\n{members})\nrunner_type = 'FlexibleRunner'\n"


CONTAINERS = {
    "whole": Container("yaml", _dump),
    "json text": Container("yml", lambda config: json.dumps(config, indent=2)),
    "hydra": Container("yaml", lambda config: _dump({**_HYDRA, "trainer": {"ds_config": config}, "seed": 1})),
    "named": Container("yaml", lambda config: _dump({"run": {"deepspeed_config": config}})),
    "interpolated": Container("yaml", _interpolated),
    "flow": Container("yaml", _flow),
    "list": Container("yaml", lambda config: _dump({"runs": [{"name": "a"}, {"deepspeed": config}]})),
    "sat": Container("yaml", lambda config: _dump({**_SAT, "deepspeed": config}), "deepspeed"),
    "arguments": Container("json", lambda config: json.dumps({"run_name": "x", "deepspeed": config}, indent=1)),
    "lightning": Container(
        "yaml",
        lambda config: _dump({"trainer": {"strategy": {**_LIGHTNING, "init_args": {"config": config}}}}),
        twin=lambda config: f"{_IMPORT}strategy = DeepSpeedStrategy(config={config!r})\n",
        twin_suffix="py",
    ),
    "mmengine": Container("py", _mmengine, twin=lambda config: f"ds_config = {_members(config)!r}\n", twin_suffix="py"),
}


def cases(full: bool) -> list[Case]:
    """Configs whose text says nothing but their data, and which a container can tell from other mappings."""
    found = []
    for case in drawn(seeded(4 if full else 1), 1000 if full else 260):
        config = None if case.kind in ("loose", "duplicate") else json.loads(case.text)
        if isinstance(config, dict) and json.dumps(config) == case.text and may_be_section("", config):
            found.append(case)
    unique = {case.text: case for case in found}
    return list(unique.values())


def judged(folder: Path, files: dict[str, str], world: int, consumer: str) -> dict[str, list[Finding]]:
    """The findings of each file, with the configs of all ranks of a world."""
    flags: dict[str, object] = {"world-size": world, "no-cache": True, "jobs": 1}
    settings = make_settings(flags | ({"consumer": consumer} if consumer else {}))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    found: dict[str, list[Finding]] = {str(folder / name): [] for name in files}
    for finding in check_paths(sorted(found), settings).findings:
        found[finding.location.path].append(finding)
    return {name: found[str(folder / name)] for name in files}


def place(text: str, span: Span, pointer: str) -> Any:
    """What stands at a place, as data; the first character alone stands for the config as a whole."""
    piece = text[span.start : span.end]
    if len(piece) <= 1 and not piece.isdigit() and piece != pointer.rpartition("/")[2]:
        return "top"
    if text.startswith((_IMPORT, "ds_config", "strategy")):
        is_key = piece.isidentifier() and piece not in ("True", "False", "None")
        return piece if is_key else _resolved(ast.literal_eval(piece), {})
    column = span.start - (text.rfind("\n", 0, span.start) + 1)
    value = yaml.safe_load(" " * column + piece)
    values = yaml.safe_load(text).get("values", {}) if "${values." in piece else {}
    return _resolved(value, values)


def _resolved(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(inner, values) for inner in value]
    if isinstance(value, str) and value.startswith("${values."):
        value = values[value[9:-1]]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def told(found: list[Finding], text: str) -> list[tuple[Any, ...]]:
    return sorted(
        (f.code, f.pointer or "", f.severity.name, json.dumps(place(text, f.location.span, f.pointer or "")))
        for f in found
    )


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_config_says_the_same_in_a_container(name: str, tmp_path: Path, full: bool) -> None:
    container = CONTAINERS[name]
    compared, loud, wrong = 0, 0, []
    chosen = cases(full)
    for world in sorted({case.world for case in chosen}):
        configs = {f"config_{n}": json.loads(c.text) for n, c in enumerate(chosen) if c.world == world}
        plain = {f"{stem}.{container.twin_suffix}": container.twin(config) for stem, config in configs.items()}
        held = {f"{stem}.{container.suffix}": container.write(config) for stem, config in configs.items()}
        may_hold = may_hold_config if container.suffix == "py" else may_hold_section
        held = {path: text for path, text in held.items() if may_hold(text.encode())}
        for folder in ("plain", "held"):
            (tmp_path / f"{folder}{world}").mkdir()
        of_twins = judged(tmp_path / f"plain{world}", plain, world, container.consumer)
        found = judged(tmp_path / f"held{world}", held, world, "")
        for path, text in held.items():
            stem = path.rpartition(".")[0]
            twin = f"{stem}.{container.twin_suffix}"
            if container.twin_suffix == "py" and not may_hold_config(plain[twin].encode()):
                continue
            expected = told(of_twins[twin], plain[twin])
            compared += 1
            loud += bool(expected)
            if told(found[path], text) != expected:
                wrong.append((configs[stem], text, expected, told(found[path], text)))
    print(name, compared, loud)
    assert compared >= LEAST
    assert loud >= compared // 4
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n\n".join("\n".join(map(str, entry)) for entry in wrong[:3])
