"""Compares a library that can be imported here with what schemas/surface says of the same release.

    python tests/surface_judge.py transformers                       # what is installed
    python tests/surface_judge.py peft --install 0.10.0              # this release, by pip into a folder of its own
    python tests/surface_judge.py datasets --install 3.6.0 --beside pyarrow dill   # with what it needs

Names are taken from both sides: what the data has must exist, and what exists must not be absent in the data.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.metadata
import inspect
import io
import random
import subprocess
import sys
import tempfile
import types
import warnings
from collections import Counter
from dataclasses import dataclass, field

from dslint.model.surface import Parameter, Surface, surface

# What the standard library and pybind11 give to classes.
_OF_PYTHON = ("_abc_impl", "_is_protocol", "_is_runtime_protocol", "_pybind11_conduit_v1_")
_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "args",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}


@dataclass
class Result:
    """What was compared, and where the two sides differ."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, kind: str, agrees: bool, text: str) -> None:
        """Note one comparison."""
        self.counts[kind] += 1
        if not agrees:
            self.counts[kind + ", different"] += 1
            self.differences.append(f"{kind}: {text}")


def compare(library: str, release: str, seed: int, names: int, signatures: int, only: str = "") -> Result:
    """Compare samples of the names and signatures of a library with the data."""
    history = surface(library)
    assert history is not None
    result = Result()
    chance = random.Random(seed)
    modules = [module for module in history.modules(release) if _worth(module) and only in module]
    chance.shuffle(modules)
    callables: list[tuple[str, object, bool]] = []
    # The library itself is what everybody imports from.
    for module in [library, *modules]:
        if result.counts["names"] >= names and len(callables) > 2 * signatures:
            break
        loaded = _load(module)
        result.counts["modules" if loaded else "modules that cannot be imported here"] += 1
        if loaded is not None:
            _module(history, release, module, loaded, result, callables, chance)
    chance.shuffle(callables)
    for dotted, value, method in callables[: signatures * 3]:
        if result.counts["signatures"] < signatures:
            _signature(history, release, dotted, value, method, result)
    return result


def _worth(module: str) -> bool:
    """Modules that can be imported without a device or a program to run."""
    # What C code gives depends on the build of torch.
    if module.startswith("torch._C."):
        return False
    bad = ("__main__", ".test", "conftest", "setup", "_tpu", "convert_", "modular_", "xla", "triton", "_vendor")
    return not any(part in module for part in bad)


def _load(module: str) -> types.ModuleType | None:
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except BaseException as error:  # some modules exit, or need a device
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def _has(value: object, name: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return hasattr(value, name)
    except Exception:
        # It is there, and says why it cannot be used.
        return True


def _conditional(module: types.ModuleType, name: str) -> bool:
    """The module binds the name in a block, a function or a star import only, which may not have run."""
    try:
        text = inspect.getsource(module)
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return False
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            bound |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return name not in bound and "_LazyModule" not in text


def _module(
    history: Surface,
    release: str,
    module: str,
    loaded: types.ModuleType,
    result: Result,
    callables: list[tuple[str, object, bool]],
    chance: random.Random,
) -> None:
    ours = sorted(history.names(module, release))
    lazy = "_class_to_module" in vars(loaded)
    real = sorted(name for name in vars(loaded) if not name.startswith("_" if lazy else "__"))
    for name in chance.sample(ours, min(len(ours), 40)):
        present = history.presence(f"{module}.{name}").in_release(release)
        there = present is None or _has(loaded, name)
        kind = "names" if there or not _conditional(loaded, name) else "names bound under a condition"
        result.add(kind, there, f"{module}.{name} does not exist")
    for name in chance.sample(real, min(len(real), 40)):
        present = history.presence(f"{module}.{name}").in_release(release)
        result.add("real names", present is not False, f"{module}.{name} exists")
        result.counts["real names, unknown"] += present is None
        value = vars(loaded)[name]
        if inspect.isfunction(value) or inspect.isclass(value):
            if getattr(value, "__module__", None) == module:
                callables.append((f"{module}.{name}", value, False))
            if inspect.isclass(value) and value.__module__ == module:
                _class(history, release, module, name, value, result, callables, chance)


def _class(
    history: Surface,
    release: str,
    module: str,
    name: str,
    value: type,
    result: Result,
    callables: list[tuple[str, object, bool]],
    chance: random.Random,
) -> None:
    ours = sorted(history.members(module, value.__name__, release))
    for each in chance.sample(ours, min(len(ours), 5)):
        result.add("attributes", _has(value, each), f"{module}.{name}.{each} does not exist")
    real = sorted(each for each in dir(value) if not each.startswith("__") and each not in _OF_PYTHON)
    for each in chance.sample(real, min(len(real), 5)):
        present = history.presence(f"{module}.{name}.{each}").in_release(release)
        result.add("real attributes", present is not False, f"{module}.{name}.{each} exists")
        result.counts["real attributes, unknown"] += present is None
        method = inspect.getattr_static(value, each)
        if inspect.isfunction(method):
            callables.append((f"{module}.{name}.{each}", method, True))


def _signature(history: Surface, release: str, dotted: str, value: object, method: bool, result: Result) -> None:
    ours = history.signature(dotted, release)
    if ours is None:
        result.counts["signatures, unknown"] += 1
        return
    try:
        real = list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]
    except (ValueError, TypeError):
        result.counts["signatures that inspect does not give"] += 1
        return
    if method:
        real = real[1:]
    want = [(each.name, _KINDS[each.kind], each.default is not inspect.Parameter.empty) for each in real]
    have = [(each.name, each.kind, each.has_default) for each in ours.parameters]
    kind = "signatures" if ours.certain else "signatures, uncertain"
    if inspect.isclass(value) and hasattr(value, "model_fields"):
        # inspect shows the fields of a pydantic model, whatever its constructor takes.
        kind += ", of pydantic models"
    elif want != have and [each[0] for each in want] == ["args", "kwargs"]:
        kind += ", wrapped by a function that does not say so"
    result.add(kind, want == have, f"{dotted}\n  real {_text(want)}\n  ours {_text(have)}")
    for mine, other in zip(ours.parameters, real, strict=False):
        if want == have and _plain(mine):
            same = repr(other.default) == repr(eval(mine.default or "None"))
            result.add("defaults", same, f"{dotted}({mine.name}) real {other.default!r} ours {mine.default}")


def _plain(parameter: Parameter) -> bool:
    """The default is a text of one literal."""
    default = parameter.default or ""
    return default in ("None", "True", "False") or default.strip("-").replace(".", "", 1).isdigit()


def _text(rows: list[tuple[str, str, bool]]) -> str:
    return ", ".join(f"{name}:{kind}{'=' if default else ''}" for name, kind, default in rows)


def main() -> None:
    """Print what a comparison finds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--beside", nargs="*", default=[], help="packages that are installed beside the release")
    parser.add_argument("--install", metavar="RELEASE", help="judge this release, not the one that is installed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--names", type=int, default=2000)
    parser.add_argument("--signatures", type=int, default=500)
    parser.add_argument("--only", default="", help="part of the name of the modules")
    args = parser.parse_args()
    release = args.install or importlib.metadata.version(args.library).partition("+")[0]
    with tempfile.TemporaryDirectory() as folder:
        if args.install:
            packages = [f"{args.library.replace('_', '-')}=={args.install}", *args.beside]
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *packages]
            subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
            sys.path.insert(0, folder)
        result = compare(args.library, release, args.seed, args.names, args.signatures, args.only)
    for line in result.differences:
        print(line)
    print(args.library, release, dict(result.counts))


if __name__ == "__main__":
    main()
