"""The fields of the dataclasses that an HfArgumentParser reads: each is an option (transformers/hf_argparser.py)."""

from __future__ import annotations

import ast

from dslint.core.fact import Fact, absent
from dslint.model.plan.parser.made import Made
from dslint.model.plan.parser.modules import Module, find_definition
from dslint.model.plan.parser.options import Option
from dslint.model.plan.pyscript import text_of
from dslint.model.plan.trainerclass import is_training_arguments
from dslint.model.workspace import Workspace

_PLAIN = ("int", "float", "str", "bool")
_HOMES = {"TrainingArguments": "training_args", "Seq2SeqTrainingArguments": "training_args_seq2seq"}
_LISTS = ("list", "List", "typing.List")


class Fields:
    """Collects them into a parser."""

    def __init__(self, made: Made, workspace: Workspace) -> None:
        self.made = made
        self.workspace = workspace

    def read(self, call: ast.Call, module: Module) -> None:
        """Take in one construction: ``HfArgumentParser((ModelArguments, TrainingArguments))``."""
        first = (
            call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "dataclass_types"), None)
        )
        first = module.script.resolved(first) if first is not None else None
        classes = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]
        for node in classes:
            name = module.script.qualified(node) if node is not None else ""
            self._class(name, module, 0)

    def _class(self, name: str, module: Module, depth: int) -> None:
        library = name.partition(".")[0]
        if is_training_arguments(name):
            last = name.rpartition(".")[2]
            self.made.libraries.append(("transformers", last))
            # A project that carries its own copy of transformers may have added fields to it.
            copied = find_definition(f"transformers.{_HOMES[last]}.{last}", module, self.workspace)
            if copied is not None and isinstance(copied[1], ast.ClassDef):
                self._body(copied[1], copied[0])
                if last != "TrainingArguments":
                    self._class("transformers.TrainingArguments", module, depth + 1)
            return
        if library == "trl":
            self.made.libraries.append(("trl", name.rpartition(".")[2]))
            self.made.open(f"not all fields of `{name}` are known")
            return
        found = find_definition(name, module, self.workspace) if depth < 8 else None
        if found is None or not isinstance(found[1], ast.ClassDef):
            if name not in ("object", "abc.ABC", "typing.Generic"):
                self.made.open(f"the fields of `{name or 'a class'}` are not in view")
            return
        owner, node = found[0], found[1]
        for base in reversed(node.bases):
            self._class(owner.script.qualified(base), owner, depth + 1)
        decorators = [owner.script.qualified(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
        if any(d.rpartition(".")[2] == "dataclass" and not d.startswith("pydantic") for d in decorators):
            self._body(node, owner)
        elif decorators:
            self.made.open(f"the decorator of `{name}` may change its fields")

    def _body(self, node: ast.ClassDef, module: Module) -> None:
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self._field(item.target.id, item, module)

    def _field(self, name: str, item: ast.AnnAssign, module: Module) -> None:
        script = module.script
        annotation = _annotation(item.annotation)
        if (
            annotation is None
            or script.qualified(annotation).endswith(("ClassVar", "KW_ONLY"))
            or "ClassVar" in ast.dump(annotation)
        ):
            return
        keywords: dict[str | None, ast.expr] = {}
        value = item.value
        is_field = isinstance(value, ast.Call) and script.qualified(value.func).rpartition(".")[2] == "field"
        if is_field and isinstance(value, ast.Call):
            keywords = {k.arg: k.value for k in value.keywords}
            value = keywords.get("default")
        if "init" in keywords and script.literal(keywords["init"]).get_or(True) is False:
            return
        if "metadata" in keywords and "aliases" in ast.dump(keywords["metadata"]):
            self.made.open(f"the field `{name}` has aliases")
        known = not isinstance(item.value, ast.Call) or is_field
        has_default = value is not None or "default_factory" in keywords or not known
        default: Fact[object] = script.literal(value, "the default of the script") if value is not None else absent()
        kind, nargs, choices, is_read = _shape(annotation)
        if "metadata" in keywords:
            own = _metadata(keywords["metadata"])
            is_read = is_read and own is not None and own <= {"help", "metavar"}
        if kind == "bool" and nargs == "?" and _may_be_none(annotation) and default.get_or(False) is None:
            nargs = None  # `Optional[bool] = None` takes exactly one word
        flags = (f"--{name}", f"--{name.replace('_', '-')}") if "_" in name else (f"--{name}",)
        required = not has_default and not (kind == "bool" and nargs == "?") and None not in keywords
        self.made.options = [o for o in self.made.options if o.dest != name]
        option = Option(
            name, flags, script.location(item), default, kind, choices, nargs, "store", required, not is_read
        )
        self.made.options.append(option)
        if kind == "bool" and nargs == "?" and default.get_or(True) is True:
            negated = (f"--no_{name}", f"--no-{name.replace('_', '-')}")
            self.made.options.append(
                Option(name, tuple(dict.fromkeys(negated)), script.location(item), default, action="store_false")
            )


def _annotation(node: ast.expr) -> ast.expr | None:
    """``"Optional[int]"`` written as a text is the type in it."""
    text = text_of(node)
    if text is None:
        return node
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _metadata(node: ast.expr) -> set[str | None] | None:
    """The keys of ``metadata={...}``: they are keywords of ``add_argument``."""
    return {text_of(key) for key in node.keys if key is not None} if isinstance(node, ast.Dict) else None


def _may_be_none(node: ast.expr) -> bool:
    return "Optional" in ast.dump(node) or "value=None" in ast.dump(node)


def _shape(node: ast.expr) -> tuple[str, str | None, tuple[object, ...] | None, bool]:
    """Converter, ``nargs`` and choices of a field; and whether the type could be read."""
    node = _without_none(node)
    name = ast.unparse(node)
    if name in _PLAIN:
        return name, "?" if name == "bool" else None, None, True
    if isinstance(node, ast.Subscript):
        outer = ast.unparse(node.value)
        if outer in _LISTS:
            inner = ast.unparse(node.slice)
            return inner if inner in ("int", "float", "str") else "", "+", None, True
        if outer.rpartition(".")[2] == "Literal":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            values = [i.value for i in items if isinstance(i, ast.Constant)]
            return "", None, tuple(values) if len(values) == len(items) else None, True
        return "", None, None, False
    return "", None, None, isinstance(node, (ast.Name, ast.Attribute)) and name not in ("list", "List")


def _without_none(node: ast.expr) -> ast.expr:
    """``Optional[X]``, ``Union[X, None]`` and ``X | None`` are X."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Optional":
        return _annotation(node.slice) or node
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Union":
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    rest = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
    return rest[0] if len(rest) == 1 and len(parts) == 2 else node
