"""What one class defines, from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from surface import signatures

_KNOWN_DECORATORS = frozenset(
    [
        "dataclass",
        "runtime_checkable",
        "total_ordering",
        "final",
        "deprecated",
        "requires",
        "auto_docstring",
        "add_start_docstrings",
        "add_end_docstrings",
        "compatibility",
        "experimental",
        "strict",
        "unique",
    ]
)


@dataclass
class Class:
    """A class: its members by kind (``f``, ``v``, ``c``), what its methods set on instances, signatures."""

    bases: list[str] = field(default_factory=list)
    members: dict[str, str] = field(default_factory=dict)
    instance: set[str] = field(default_factory=set)
    sigs: dict[str, signatures.Sig] = field(default_factory=dict)
    # It answers to names that nothing here tells: by `__getattr__`, or by its metaclass.
    dynamic: bool = False
    opened: bool = False
    # Names may be there that its text never lists: it comes from C code, or its methods set attributes by a variable.
    unlisted: bool = False
    # Fields of a dataclass or named tuple as parameters; None for other classes.
    fields: list[tuple[str, str | None, bool]] | None = None
    named_tuple: bool = False
    metaclass: str = ""


def read_class(node: ast.ClassDef) -> Class:
    """The class that a statement defines."""
    cls = Class([_base(base) for base in node.bases])
    for word in node.keywords:
        if word.arg == "metaclass":
            cls.metaclass = ast.unparse(word.value)
            cls.opened = signatures.last_name(word.value) not in ("ABCMeta", "EnumMeta", "")
    for decorator in node.decorator_list:
        name = signatures.last_name(decorator)
        if name in ("dataclass", "pydantic_dataclass") and not _without_init(decorator):
            cls.fields = []
        elif name not in _KNOWN_DECORATORS:
            cls.dynamic = True
    if any(base.rsplit(".", 1)[-1] == "NamedTuple" for base in cls.bases):
        cls.fields, cls.named_tuple = [], True
    _read(node.body, cls, _keywords_only(node))
    return cls


def _base(node: ast.expr) -> str:
    # Generic[T] is Generic, Base[Config] is Base.
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node)


def _without_init(decorator: ast.expr) -> bool:
    words = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(w.arg == "init" and isinstance(w.value, ast.Constant) and not w.value.value for w in words)


def _keywords_only(node: ast.ClassDef) -> bool:
    return any(
        word.arg == "kw_only" and isinstance(word.value, ast.Constant) and bool(word.value.value)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for word in decorator.keywords
    )


def _read(body: Iterable[ast.stmt], cls: Class, only: bool) -> None:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _method(node, cls)
        elif isinstance(node, ast.ClassDef):
            cls.members[node.name] = "c"
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            only = _field(node, cls, only)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for inner in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(inner, ast.Name):
                        cls.members[inner.id] = _assigned(node.value, inner.id, cls)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                cls.members[alias.asname or alias.name.split(".")[0]] = "v"
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)
            _read([] if test.endswith("TYPE_CHECKING") and "not" not in test else node.body, cls, only)
            _read(node.orelse, cls, only)
        elif isinstance(node, ast.Try):
            _read([*node.body, *(each for h in node.handlers for each in h.body), *node.orelse], cls, only)
        elif isinstance(node, (ast.For, ast.With, ast.While)):
            _read(node.body, cls, only)
            cls.opened |= "locals()" in ast.unparse(node) or "vars()" in ast.unparse(node)


def _assigned(value: ast.expr, name: str, cls: Class) -> str:
    """A member that is another one under a second name has its signature, too."""
    if isinstance(value, ast.Name) and value.id in cls.members:
        if value.id in cls.sigs:
            cls.sigs[name] = cls.sigs[value.id]
        return cls.members[value.id]
    cls.sigs.pop(name, None)
    return "v"


def _field(node: ast.AnnAssign, cls: Class, only: bool) -> bool:
    """Note an annotated name; whether the fields after it are taken by name only."""
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    if annotation.rsplit(".", 1)[-1] == "KW_ONLY":
        return True
    if cls.fields is None or "ClassVar" in annotation:
        if node.value is not None:
            # Of a pydantic model it is a field, which the class itself has not.
            cls.members[name] = "a"
        else:
            # An annotation alone binds nothing; instances mostly have it.
            cls.instance.add(name)
        return only
    call = node.value if isinstance(node.value, ast.Call) and "field" in ast.unparse(node.value.func).lower() else None
    words = {word.arg: word.value for word in call.keywords} if call else {}
    has_class_value = node.value is not None and (call is None or "default" in words)
    if has_class_value or cls.named_tuple:
        cls.members[name] = "v"
    else:
        cls.instance.add(name)
    if "init" in words and ast.unparse(words["init"]) == "False":
        return only
    text: str | None = None
    if call is None:
        text = None if node.value is None else signatures.default(node.value)
    elif "default" in words:
        text = signatures.default(words["default"])
    elif "default_factory" in words:
        text = "<factory>"
    cls.fields.append((name, text, only or ("kw_only" in words and ast.unparse(words["kw_only"]) == "True")))
    return only


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, cls: Class) -> None:
    kinds = [signatures.last_name(each) for each in node.decorator_list]
    if "overload" in kinds:
        cls.members.setdefault(node.name, "f")
        return
    if any(isinstance(each, ast.Attribute) and each.attr in ("setter", "deleter") for each in node.decorator_list):
        return
    is_value = any("property" in kind for kind in kinds)
    cls.members[node.name] = "v" if is_value else "f"
    if not is_value:
        sig = signatures.of_function(node)
        if "staticmethod" not in kinds or node.name == "__new__":
            sig.text = _without_first(node.args)
        cls.sigs[node.name] = sig
    if node.name in ("__getattr__", "__getattribute__"):
        cls.dynamic = True
    positional = [*node.args.posonlyargs, *node.args.args]
    if positional and "staticmethod" not in kinds:
        _instance(node, positional[0].arg, cls)


def _without_first(args: ast.arguments) -> str:
    positional = [*args.posonlyargs, *args.args]
    if not positional:
        return signatures.parameters(args)
    kept = positional[1:]
    own = ast.arguments(
        posonlyargs=kept[: max(0, len(args.posonlyargs) - 1)],
        args=kept[max(0, len(args.posonlyargs) - 1) :],
        vararg=args.vararg,
        kwonlyargs=args.kwonlyargs,
        kw_defaults=args.kw_defaults,
        kwarg=args.kwarg,
        defaults=args.defaults[-len(kept) :]
        if kept and len(args.defaults) > len(kept)
        else args.defaults
        if kept
        else [],
    )
    return signatures.parameters(own)


def _instance(node: ast.FunctionDef | ast.AsyncFunctionDef, me: str, cls: Class) -> None:
    """Note what the statements of a method set on its object."""
    for statement in _statements(node.body):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for inner in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                    if isinstance(inner, ast.Attribute) and _is(inner.value, me):
                        cls.instance.add(inner.attr)
                    elif isinstance(inner, ast.Subscript) and ast.unparse(inner.value) == f"{me}.__dict__":
                        cls.unlisted = True
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            _called(statement.value, me, cls)


def _called(call: ast.Call, me: str, cls: Class) -> None:
    name = signatures.last_name(call.func)
    if name == "setattr" and call.args and _is(call.args[0], me):
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            cls.instance.add(str(call.args[1].value))
        else:
            cls.unlisted = True
    elif name in ("update", "__setattr__") and "__dict__" in ast.unparse(call.func):
        cls.unlisted = True


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a function, those of blocks too; not those of functions in it."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            stack += getattr(node, name, ())
        for handler in getattr(node, "handlers", ()):
            stack += handler.body
        if isinstance(node, ast.Match):
            stack += [each for case in node.cases for each in case.body]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
