"""The script asks for a setting at a place where no configuration of the project has it.

**What.** Two kinds. `config.get("training.grad_checkpointing", False)`: a nested configuration has a section `training`
with that key, and no key whose name has a dot. `args_pretrain.get("frame_step", 4)` where all YAML files of the project
have `frame_step` in the section `data`, which the same function reads as well.

**Why it hurts.** `get` finds nothing and gives the default, silently and in every run: the configuration asks for
checkpointing and the job runs out of memory, or it states a number of frames, and the model is evaluated with another.

**Fix.** `OmegaConf.select(config, "training.grad_checkpointing")`, or `config.training.get("grad_checkpointing")`; read
the section that has the key.

**When it stays quiet.** Nothing in the run reads the first part of the name as a section; a class of the project has a
`get` of its own; libraries whose `get` takes paths (pyhocon, dynaconf, Box); code or files that write such a key; some
file has the key in the section that is read, or no file has both sections.

**Evidence.** omegaconf 2.3 and `dict`: `get("a.b")` of `{"a": {"b": 1}}` is the default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.settingfiles import Section, sections_with
from dslint.rules.names.settings import Setting, is_key, settings_read
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL754",
    name="setting-of-no-section",
    kind="script",
    severity=Severity.WARNING,
    summary="a setting is asked for where no configuration has it, so that the default always counts",
    markers=(r"\.get\(", r"torch|accelerat|deepspeed|transformers|lightning|omegaconf|hydra"),
    references=("https://omegaconf.readthedocs.io/en/latest/usage.html#omegaconf-select",),
    depends_on_run=True,
    no_experiment="a dictionary shows it: there is nothing to run on several ranks",
)
_DOTTED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_][\w.]*)")
_PATHS = re.compile(r"pyhocon|dynaconf|box_dots|benedict|\bfrom box\b|jmespath|flatten_(?:dict|conf)|wandb\.config")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each read that certainly finds nothing."""
    modules = run.machine.program.modules()
    read = [setting for module in modules for setting in settings_read(module)]
    yield from _dotted(run, modules, read)
    yield from _misplaced(run, read)


# -- names with dots ----------------------------------------------------------------------------------------------


def _dotted(run: RunQuery, modules: list[Module], read: list[Setting]) -> Iterator[Finding]:
    found = [(setting, words) for setting in read if (words := _DOTTED.fullmatch(setting.key)) is not None]
    if not found or any(module.search(_PATHS) for module in modules) or any(map(_has_own_get, modules)):
        return
    for setting, words in found:
        place = _section(modules, setting, words[1])
        if isinstance(setting.node, ast.Call) and place is not None and not _is_written(modules, setting.key):
            base = ast.unparse(setting.base)
            yield run.finding(
                META,
                setting.module,
                setting.node,
                f"`get` looks for one key `{setting.key}`, which no nested configuration has: its default counts",
                hint=f"`OmegaConf.select({base}, ...)`, or ask the section: `{base}.{words[1]}.get({words[2]!r})`",
                related=(run.location(*place, f"`{words[1]}` is a section"),),
                facts={"setting": setting.key},
            )


def _has_own_get(module: Module) -> bool:
    return any(f.name == "get" and isinstance(module.parents.get(f), ast.ClassDef) for f in module.functions)


def _section(modules: list[Module], setting: Setting, name: str) -> tuple[Module, ast.AST] | None:
    """Return where the run reads something of a section by its name, of a configuration of the same name."""
    base = last_name(setting.base)
    for module in modules:
        for node in module.attributes.get(name, ()):
            if last_name(node.value) == base and isinstance(module.parents.get(node), ast.Attribute | ast.Subscript):
                return module, node
        for other in settings_read(module):
            outer = module.parents.get(other.node)
            is_section = isinstance(outer, ast.Subscript | ast.Attribute) and outer.value is other.node
            if other.key == name and last_name(other.base) == base and is_section:
                return module, other.node
    return None


def _is_written(modules: list[Module], key: str) -> bool:
    """Return whether some code writes a key of that name."""
    for module in modules:
        for node in module.nodes_of(ast.Constant):
            around = module.parents.get(node) if node.value == key else None
            if isinstance(around, ast.Dict | ast.Tuple | ast.List | ast.Compare):
                return True
            if isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Store):
                return True
    return False


# -- another section ----------------------------------------------------------------------------------------------


def _misplaced(run: RunQuery, read: list[Setting]) -> Iterator[Finding]:
    sections = {id(s.node): (s, *of) for s in read if (of := _section_of(s)) is not None and is_key(s.key)}
    for setting, name, outer in sections.values():
        if setting.default is None or not isinstance(setting.node, ast.Call):
            continue
        beside = {n for s, n, o in sections.values() if s.module is setting.module and o == outer} - {name}
        if not beside or any(n != name and s.key == setting.key for s, n, _ in sections.values()):
            continue
        for other in sorted(beside):
            place = _only_in(list(sections_with(run, setting.key, name, other)), setting.key, name, other)
            if place is not None:
                yield run.finding(
                    META,
                    setting.module,
                    setting.node,
                    f"`{setting.key}` is asked of `{name}`, and the files have it in `{other}`: its default counts",
                    hint=f"Read `{setting.key}` from the section `{other}`",
                    related=(place.place(setting.key, f"`{setting.key}` is here"),),
                    facts={"setting": setting.key, "section": other},
                )


def _section_of(setting: Setting) -> tuple[str, str] | None:
    """Return the section that a setting is read from, and what that is a section of."""
    node = names_of(setting.module.tree).behind(setting.base)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key, base = node.args[0], node.func.value
    elif isinstance(node, ast.Subscript):
        key, base = node.slice, node.value
    elif isinstance(node, ast.Attribute):
        return node.attr, ast.unparse(node.value)
    else:
        return None
    return (key.value, ast.unparse(base)) if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _only_in(found: list[Section], key: str, name: str, other: str) -> Section | None:
    """Return a section that has the key, where all files that have it have it there."""
    with_key = [s for s in found if isinstance(s.data[other], dict) and key in s.data[other]]  # type: ignore[operator]
    wrong = [s for s in found if not isinstance(s.data[name], dict) or key in s.data[name]]  # type: ignore[operator]
    if wrong or not with_key:
        return None
    first = with_key[0]
    inner = first.data[other]
    return Section(first.doc, f"{first.pointer}/{other}", inner) if isinstance(inner, dict) else None


_TRAIN = """\
import sys

import torch
import torch.distributed as dist
from omegaconf import OmegaConf


def main(config):
    dist.init_process_group("gloo")
    torch.manual_seed(config.training.seed)
    %s
    return torch.ones(8), value


if __name__ == "__main__":
    main(OmegaConf.load(sys.argv[1]))
"""
_EVAL = """\
import sys

import torch
import yaml


def main(args_eval):
    args_model = args_eval.get("model")
    args_data = args_eval["data"]
    torch.distributed.init_process_group("gloo")
    width = args_model.get("width", 8)
    step = %s
    return torch.load(args_data.get("path")), width, step


if __name__ == "__main__":
    main(yaml.safe_load(open(sys.argv[1])))
"""
_YAML = "model:\n  width: 16\ndata:\n  path: x.pt\n  frame_step: 4\n"
_WRONG = 'args_model.get("frame_step", 2)'


def _script(line: str, head: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN.replace("import torch\n", f"import torch\n{head}", 1) % line}


EXAMPLES = (
    bad("a name with a dot", _script(
        'value = config.get("training.grad_checkpointing", False)'), "train.py:11 warning"),
    bad("without a default", _script('value = config.get("training.lr")'), "train.py:11"),
    bad("of a dictionary", {"train.py": (_TRAIN % 'value = config.get("training.lr", 0.1)').replace(
        "config.training.seed", 'config["training"]["seed"]')}, "train.py:11"),
    good("the section is asked", _script('value = config.training.get("grad_checkpointing", False)')),
    good("a function that takes paths", _script('value = OmegaConf.select(config, "training.grad_checkpointing")')),
    good("a part of a model", _script('value = torch.load("x.pt").get("training.weight")')),
    good("a class of the project takes paths", {"train.py": (_TRAIN % 'value = config.get("training.lr", 0.1)').replace(
        "def main", "class Config(dict):\n    def get(self, path, default=None):\n        for key in path.split('.'):\n"
        "            self = self[key]\n        return self\n\n\ndef main").replace("OmegaConf.load(", "Config(")}),
    good("such a key is written", _script(
        'config["training.lr"] = 0.1\n    value = config.get("training.lr", 0.2)')),
    bad("another section has it in all files", {
        "evaluate.py": _EVAL % _WRONG, "configs/a.yaml": _YAML, "configs/b.yaml": _YAML}, "evaluate.py:12 warning"),
    good("the section that has it", {
        "evaluate.py": _EVAL % 'args_data.get("frame_step", 2)', "configs/a.yaml": _YAML}),
    good("one file has it in this section", {
        "evaluate.py": _EVAL % _WRONG, "configs/a.yaml": _YAML,
        "configs/b.yaml": _YAML.replace("16\n", "16\n  frame_step: 2\n")}),
    good("both sections are read", {
        "evaluate.py": _EVAL % 'args_model.get("frame_step", args_data.get("frame_step", 2))',
        "configs/a.yaml": _YAML}),
    good("no file has both sections", {
        "evaluate.py": _EVAL % _WRONG, "configs/a.yaml": _YAML.replace("model:", "net:")}),
)  # fmt: skip
