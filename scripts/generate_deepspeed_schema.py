"""Generates ``schemas/deepspeed/<version>.schema.json`` from the source of a DeepSpeed release.

    python scripts/generate_deepspeed_schema.py deepspeed-0.19.8.tar.gz

The source (an sdist, an unpacked tree or an installed package) is read as text: neither DeepSpeed nor torch
is imported. Sections with a pydantic model come from the model; what DeepSpeed reads with ``dict.get`` comes from
``deepspeed_handwritten.json``, with the defaults of the source. A key that the parser reads and nobody described
stops the generator, so that a new release cannot be half covered.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic_ast import Field, Module, Tree, UnreadableError

HERE = Path(__file__).resolve().parent
SCHEMAS = HERE.parent / "schemas" / "deepspeed"
CONFIG = "runtime/config.py"

# Sections that a pydantic model reads: unknown keys are refused there.
MODELS = {
    "zero_optimization": ("runtime/zero/config.py", "DeepSpeedZeroConfig"),
    "fp16": ("runtime/precision_config.py", "DeepSpeedFP16Config"),
    "bf16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
    "bfloat16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
    "tensorboard": ("monitor/config.py", "TensorBoardConfig"),
    "wandb": ("monitor/config.py", "WandbConfig"),
    "csv_monitor": ("monitor/config.py", "CSVConfig"),
    "comet": ("monitor/config.py", "CometConfig"),
    "comms_logger": ("comm/config.py", "CommsLoggerConfig"),
    "compile": ("compile/config.py", "CompileConfig"),
    "hybrid_engine": (CONFIG, "HybridEngineConfig"),
    "timers/throughput": ("utils/config.py", "DeepSpeedThroughputTimerConfig"),
    "weight_quantization": ("inference/config.py", "WeightQuantConfig"),
    "tensor_parallel": ("runtime/tensor_parallel/config.py", "TPTrainingConfig"),
}
# Sections whose keys are read one by one with a default: file that holds the calls.
LOOSE = {
    "": CONFIG,
    "activation_checkpointing": "runtime/activation_checkpointing/config.py",
    "flops_profiler": "profiling/config.py",
    "aio": "runtime/swap_tensor/aio_config.py",
    "autotuning": "autotuning/config.py",
    "checkpoint": "runtime/model_checkpointing/config.py",
    "checkpoint/writer": "runtime/model_checkpointing/config.py",
}
SCALARS = {"bool": "boolean", "int": "integer", "float": "number"}
AUTO = {"const": "auto"}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="sdist (.tar.gz), unpacked tree, or installed package folder")
    parser.add_argument("--version", help="version of the release (default: read from the source)")
    parser.add_argument("--output", type=Path, help="file to write (default: schemas/deepspeed/<version>.schema.json)")
    args = parser.parse_args()
    version = args.version or find_version(args.source)
    output = args.output or SCHEMAS / f"{version}.schema.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(render(args.source, version), encoding="utf-8")
    print(output)
    return 0


def find_version(source: Path) -> str:
    """The release that a source tree or archive holds."""
    match = re.search(r"deepspeed-(\d[\w.]*?)(\.tar\.gz)?$", source.name)
    if match:
        return match[1]
    for candidate in (source / "git_version_info_installed.py", source / "version.txt"):
        if candidate.is_file():
            found = re.search(r"\d+\.\d+\.\d+", candidate.read_text("utf-8"))
            if found:
                return found[0]
    raise SystemExit(f"{source}: cannot tell the version; use --version")


def render(source: Path, version: str) -> str:
    """The schema as the text of the committed file."""
    hand = json.loads((HERE / "deepspeed_handwritten.json").read_text("utf-8"))
    return json.dumps(build(Tree(source), version, hand), indent=2, ensure_ascii=False) + "\n"


def build(tree: Tree, version: str, hand: dict[str, Any]) -> dict[str, Any]:
    """The schema as data."""
    config = tree.module(CONFIG)
    check_coverage(config, hand)
    properties: dict[str, Any] = dict(hand["properties"])
    for path, (file, model) in MODELS.items():
        section, _, inner = path.partition("/")
        built = model_schema(tree.module(file), model)
        target = properties.setdefault(section, {}).setdefault("properties", {}) if inner else properties
        target[inner or section] = merge(built, target.get(inner or section, {}))
    for section, file in LOOSE.items():
        add_defaults(section_at(properties, section), tree.module(file))
    removed(properties, config.value(config.assigned["_REMOVED_TOP_LEVEL_CONFIG_KEYS"]), hand["removed_in"])
    zero = properties["zero_optimization"]["properties"]
    removed(zero, config.value(config.assigned["_REMOVED_ZERO_CONFIG_KEYS"]), hand["removed_in"])
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        # A name, not an address: the file is used offline, from wherever it was copied to.
        "$id": f"urn:dslint:deepspeed-config:{version}",
        "$comment": f"Generated by scripts/generate_deepspeed_schema.py from DeepSpeed {version} (Apache-2.0); "
        "do not edit.",
        "title": f"DeepSpeed {version} configuration",
        "description": hand["description"],
        "type": "object",
        "properties": {key: properties[key] for key in sorted(properties)},
        "patternProperties": {"^_": {"description": "A comment: DeepSpeed reads no key that begins with `_`."}},
        "additionalProperties": False,
        "definitions": hand["definitions"],
    }


def section_at(properties: dict[str, Any], path: str) -> dict[str, Any]:
    """The ``properties`` of a section."""
    for part in filter(None, path.split("/")):
        properties = properties[part]["properties"]
    return properties


def merge(built: dict[str, Any], hand: dict[str, Any]) -> dict[str, Any]:
    """A generated schema with hand-kept additions; ``null`` deletes a keyword."""
    out = dict(built)
    for key, value in hand.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = value
    return out


def removed(properties: dict[str, Any], messages: dict[str, str], since: dict[str, str]) -> None:
    """Marks keys whose presence alone DeepSpeed refuses."""
    for key, message in messages.items():
        properties[key] = {
            "description": message.strip(),
            "not": {},
            "deprecationMessage": message.strip(),
            "errorMessage": message.strip(),
            "doNotSuggest": True,
            "x-dslint": {"removed_in": since[key]},
        }


# --- pydantic sections -------------------------------------------------------------------------------------------


def model_schema(module: Module, name: str, nullable: bool = False, dropped: bool = False) -> dict[str, Any]:
    """The schema of a section; ``dropped``: the parent ignores it when it is ``"auto"``."""
    fields = module.fields(name)
    properties: dict[str, Any] = {}
    exclusive: list[list[str]] = []
    for item in fields:
        for spelled in filter(None, (item.alias, item.name)):
            properties[spelled] = field_schema(module, item)
        if item.alias:
            exclusive.append([item.alias, item.name])
        exclusive += [[item.name, new] for new in successors(item, fields)]
    out: dict[str, Any] = {"title": name, "description": module.docstring(name)}
    types = ["object", *(["null"] if nullable else []), *(["string"] if dropped else [])]
    out["type"] = types if len(types) > 1 else "object"
    if dropped:
        out["pattern"] = "^auto$"
    out |= {"properties": properties, "additionalProperties": False, "x-dslint": {"model": name}}
    if exclusive:
        out["allOf"] = [not_both(pair) for pair in exclusive]
    return {k: v for k, v in out.items() if v != ""}


def successors(item: Field, fields: list[Field]) -> list[str]:
    """The spellings of the key that replaces a deprecated one, where both together are an error."""
    new = next((f for f in fields if f.name == item.successor), None)
    return [s for s in (new.alias, new.name) if s] if new and item.deprecated else []


def not_both(pair: list[str]) -> dict[str, Any]:
    """Two names of one setting; a value of ``"auto"`` is dropped before the test."""
    used = {"not": AUTO}
    return {"not": {"required": pair, "properties": dict.fromkeys(pair, used)}, "x-dslint": {"same_setting": pair}}


def field_schema(module: Module, item: Field) -> dict[str, Any]:
    """The schema of one field."""
    out: dict[str, Any] = {"description": item.description}
    if item.deprecated:
        text = f"Deprecated: use `{item.successor}`." if item.successor else "Deprecated."
        out |= {"description": text, "deprecationMessage": text, "doNotSuggest": True}
    out |= annotation(module, item.annotation, item.limits)
    for limit, keyword in (
        ("ge", "minimum"),
        ("gt", "exclusiveMinimum"),
        ("le", "maximum"),
        ("lt", "exclusiveMaximum"),
    ):
        if limit in item.limits:
            out[keyword] = item.limits[limit]
    nested = "properties" in out
    if item.has_default and not (nested and not item.default):
        out["default"] = item.default
    return {k: v for k, v in out.items() if v != ""}


def annotation(module: Module, node: ast.expr, limits: dict[str, float]) -> dict[str, Any]:
    """The schema of a type as pydantic's lax mode accepts it, ``"auto"`` included."""
    nullable = False
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Optional":
        nullable, node = True, node.slice
    owner, name = nested_model(module, node)
    if owner is not None:
        return model_schema(owner, name, nullable=nullable, dropped=True)
    branches = type_branches(module, node, limits)
    if nullable:
        branches.append({"type": "null"})
    if len(branches) > 1:
        return {"anyOf": branches}
    # Beside a $ref, draft-07 ignores everything else.
    return {"allOf": branches} if "$ref" in branches[0] else branches[0]


def nested_model(module: Module, node: ast.expr) -> tuple[Module | None, str]:
    """The module and name of a model used as a type."""
    name = ast.unparse(node)
    owner = module.owner(name) if isinstance(node, ast.Name) else None
    is_model = owner is not None and name in owner.classes and not is_enum(owner, name)
    return (owner if is_model else None), name


def is_enum(module: Module, name: str) -> bool:
    """The class is an enumeration."""
    return "Enum" in module.bases(name)


def type_branches(module: Module, node: ast.expr, limits: dict[str, float]) -> list[dict[str, Any]]:
    """The alternatives for one type, without ``Optional``."""
    text = ast.unparse(node)
    if text in SCALARS:
        prefix = {("gt", 0): "positive_", ("ge", 0): "nonnegative_"}.get(next(iter(limits.items()), ("", -1)), "")
        return [{"$ref": f"#/definitions/{prefix if text == 'int' else ''}{SCALARS[text]}"}]
    if text in ("str", "Path"):
        return [{"type": "string"}]
    if text == "object":
        return [{}]
    outer = ast.unparse(node.value) if isinstance(node, ast.Subscript) else text
    if isinstance(node, ast.Subscript) and outer == "Union" and isinstance(node.slice, ast.Tuple):
        return [b for part in node.slice.elts for b in type_branches(module, part, limits)]
    if isinstance(node, ast.Subscript) and outer == "Literal":
        return [{"enum": [*module.value(node.slice), "auto"]}]
    if outer in ("List", "list", "tuple"):
        inner = {"items": annotation(module, node.slice, {})} if isinstance(node, ast.Subscript) else {}
        return [{"type": "array", **without_auto(inner)}, AUTO]
    if outer in ("Dict", "dict"):
        return [{"type": "object"}, AUTO]
    owner = module.owner(text)
    if owner is not None and text in owner.assigned:  # a type alias
        return type_branches(owner, owner.assigned[text], limits)
    if owner is not None and is_enum(owner, text):
        values = list(dict.fromkeys(owner.members(text).values()))
        lax = [{"$ref": "#/definitions/stage_text"}] if values == [0, 1, 2, 3] else []
        return [{"enum": [*values, "auto"]}, *lax]
    # A Python object, which no JSON value can be; DeepSpeed drops "auto" before it looks.
    return [AUTO]


def without_auto(inner: dict[str, Any]) -> dict[str, Any]:
    """``"auto"`` is dropped only as the value of a key, not inside a list."""
    items = inner.get("items", {})
    if "enum" in items:
        return {"items": {"enum": [v for v in items["enum"] if v != "auto"]}}
    return inner


# --- what is read with dict.get ------------------------------------------------------------------------------------


def reads(module: Module, names: str = r"\w+") -> dict[str, ast.expr | None]:
    """Keys that a parser reads from dictionaries with such names, with the expression of the default."""
    out: dict[str, ast.expr | None] = {}
    for node in ast.walk(module.node):
        key, default = read_access(node, re.compile(rf"({names})(\.get)?"))
        if key is None:
            continue
        try:
            name = module.value(key)
        except UnreadableError:
            continue
        if isinstance(name, str) and out.get(name) is None:
            out[name] = default
    return out


def read_access(node: ast.AST, read_from: re.Pattern[str]) -> tuple[ast.expr | None, ast.expr | None]:
    """Key and default of ``get_scalar_param(d, key, default)``, ``d.get(key, default)`` or ``key in d``."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in ("get_scalar_param", "get_dict_param") and len(node.args) == 3:
            if read_from.fullmatch(ast.unparse(node.args[0])):
                return node.args[1], node.args[2]
        elif called.endswith(".get") and read_from.fullmatch(called):
            return node.args[0], (node.args[1] if len(node.args) > 1 else None)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
        searched = ast.unparse(node.comparators[0]).removesuffix(".keys()")
        return (node.left if read_from.fullmatch(searched) else None), None
    return None, None


def check_coverage(config: Module, hand: dict[str, Any]) -> None:
    """Every key that the parser of this release reads is described.

    Raises:
        SystemExit: names the keys that are not.
    """
    known = set(hand["properties"]) | {p.split("/")[0] for p in MODELS}
    missing = sorted(set(reads(config, r"_?param_dict|self._param_dict|ds_config|config")) - known)
    if missing:
        raise SystemExit(f"deepspeed_handwritten.json does not describe: {', '.join(missing)}")


def add_defaults(properties: dict[str, Any], module: Module) -> None:
    """Fills in the defaults that the source states."""
    for key, default in reads(module).items():
        schema = properties.get(key)
        if schema is None or default is None or "default" in schema or "properties" in schema:
            continue
        try:
            value = module.value(default)
        except UnreadableError:
            continue
        if value not in ({}, []):
            schema["default"] = value


if __name__ == "__main__":
    sys.exit(main())
