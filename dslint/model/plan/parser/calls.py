"""Calls that make, extend, hand on or use a parser."""

from __future__ import annotations

import ast

from dslint.model.plan.parser.fields import Fields
from dslint.model.plan.parser.made import DEEPSPEED_OPTIONS, TUNING_OPTIONS, Made
from dslint.model.plan.parser.modules import Module, find_definition
from dslint.model.plan.parser.options import LETS_PASS
from dslint.model.plan.parser.walk import MARKERS, Environment, Walk

_HARMLESS = ("error", "exit", "print_help", "print_usage", "format_help", "format_usage", "get_default")
_READERS = ("print", "str", "repr", "isinstance", "type", "id", "vars")
_KNOWN_ONLY = ("parse_known_args", "parse_known_intermixed_args")
_PARSES = ("parse_args", "parse_intermixed_args", *_KNOWN_ONLY, "parse_args_into_dataclasses", "parse_args_and_config")
_ARGV_CHANGES = ("append", "extend", "insert", "remove", "pop", "clear")
_DEPTH = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Calls:
    """What a scope does with the calls in it; its statements and expressions are read by the class below."""

    def __init__(self, walk: Walk, module: Module, names: Environment, depth: int = 0, is_main: bool = True) -> None:
        self.walk = walk
        self.module = module
        self.names = names
        self.depth = depth
        self.is_main = is_main
        self.is_certain = True
        self.returned: list[Made] = []
        self.parameters: dict[str, ast.expr | None] = {}
        # ``add = parser.add_argument``
        self.adders: dict[str, Made] = {}

    def body(self, statements: list[ast.stmt]) -> None:
        """Follow statements in order."""
        raise NotImplementedError

    def value(self, node: ast.expr) -> Made | None:
        """The parser that an expression is, else ``None``."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Made | None:
        """The parser that a call gives back, if one; what it does to parsers takes effect."""
        name = self.module.script.qualified(node.func)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if owner is not None:
                return self._method(owner, node.func.attr, node)
            if name.rpartition(".")[0] == "sys.argv" and node.func.attr in _ARGV_CHANGES:
                self.walk.strange = "the script changes `sys.argv`"
            elif node.func.attr in _PARSES:
                self.walk.strange = "a parser that is not in view parses the command line"
        elif isinstance(node.func, ast.Name) and node.func.id in self.adders:
            return self._method(self.adders[node.func.id], "add_argument", node)
        self.walk.other_library(name)
        if name.endswith(("ArgumentParser", "TrlParser")):
            return self._parser(name, node)
        positional = [self.value(a.value if isinstance(a, ast.Starred) else a) for a in node.args]
        keywords = {k.arg or "**": self.value(k.value) for k in node.keywords}
        return self._function(name, node, positional, keywords)

    def _parser(self, name: str, node: ast.Call) -> Made:
        """``ArgumentParser(...)``, ``HfArgumentParser((...))``."""
        last = name.rpartition(".")[2]
        if last in ("HfArgumentParser", "TrlParser"):
            made = Made("hf" if last.startswith("Hf") else "trl")
            Fields(made, self.walk.workspace).read(node, self.module)
            return made
        made = Made()
        if name not in ("argparse.ArgumentParser", "ArgumentParser"):
            made.open(f"`{name}` is no plain parser")
        for keyword in node.keywords:
            if keyword.arg == "parents":
                self._parents(made, keyword.value)
            elif keyword.arg in (None, "fromfile_prefix_chars", "prefix_chars"):
                made.open(f"the parser is made with `{keyword.arg or '**'}`")
            elif keyword.arg == "allow_abbrev":
                made.abbreviates = self.module.script.literal(keyword.value).get_or(True) is not False
            elif keyword.arg == "add_help":
                made.helps = self.module.script.literal(keyword.value).get_or(True) is not False
        return made

    def _parents(self, made: Made, node: ast.expr) -> None:
        for item in node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]:
            parent = self.value(item)
            if parent is None:
                made.open("a parent of the parser is not in view")
                continue
            made.options += parent.options
            if parent.open_because:
                made.open(parent.open_because)

    def _method(self, made: Made, method: str, node: ast.Call) -> Made | None:
        for value in (*node.args, *(k.value for k in node.keywords)):
            self.value(value)
        if method == "add_argument":
            made.add(node, self.module, self.is_certain)
        elif method in ("add_argument_group", "add_mutually_exclusive_group"):
            return made
        elif method in _PARSES:
            self._parse(made, method, node)
        elif method == "set_defaults":
            made.overridden |= {k.arg or "**" for k in node.keywords}
        elif method in ("parse_json_file", "parse_yaml_file", "parse_dict"):
            made.reads_file = method != "parse_dict"  # beside the command line
        elif method not in _HARMLESS:
            made.open("it has subparsers" if method == "add_subparsers" else f"`{method}` is called on the parser")
        return None

    def _parse(self, made: Made, method: str, node: ast.Call) -> None:
        """The command line is read here, when it is not a list of words that the script has made."""
        first = next((k.value for k in node.keywords if k.arg == "args"), node.args[0] if node.args else None)
        if first is not None and not self._is_command_line(first):
            made.open("it parses words that the script chooses")
        strict = {k.arg for k in node.keywords} - {"args", "namespace", "look_for_args_file"}
        if method in _KNOWN_ONLY:
            made.open(LETS_PASS)
        elif strict:
            made.open(f"it parses with `{sorted(str(k) for k in strict)[0]}`")
        made.parses.append(self.module.script.location(node))
        if made not in self.walk.made:
            self.walk.made.append(made)

    def _is_command_line(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return node.value is None
        if isinstance(node, ast.Name) and node.id in self.parameters:
            given = self.parameters[node.id]
            # A name in it is one of the caller, or of the module, that may read like a parameter of this function.
            return given is not None and not isinstance(given, ast.Name) and self._is_command_line(given)
        return isinstance(node, ast.Subscript) and ast.unparse(node).replace(" ", "") == "sys.argv[1:]"

    def _function(
        self, name: str, node: ast.Call, positional: list[Made | None], keywords: dict[str, Made | None]
    ) -> Made | None:
        given = [m for m in (*positional, *keywords.values()) if m is not None]
        if name in ("deepspeed.add_config_arguments", "deepspeed.add_tuning_arguments") and given:
            table = DEEPSPEED_OPTIONS if "config" in name else TUNING_OPTIONS
            given[0].add_known(table, self.module.script.location(node))
            return given[0]
        found = find_definition(name, self.module, self.walk.workspace, MARKERS if not given else None)
        if found is None or isinstance(found[1], ast.ClassDef):
            if name in _READERS:
                return None
            for made in given:
                made.open(f"`{name or 'a call'}` may add options")
            if found is not None and MARKERS.search(ast.unparse(found[1])):
                self.walk.strange = f"the class `{name}` may parse the command line"
            return None
        return self._enter(found[0], found[1], node, positional, keywords, given)

    def _enter(
        self, module: Module, function: Function, node: ast.Call, positional: list[Made | None],
        keywords: dict[str, Made | None], given: list[Made],
    ) -> Made | None:  # fmt: skip
        key = (module.path, function.lineno)
        if not given and key in self.walk.visited:
            return None
        self.walk.budget -= 1
        if self.depth >= _DEPTH or self.walk.budget < 0:
            self.walk.strange = "the calls go too deep"
            for made in given:
                made.open("the calls go too deep")
            return None
        inner = type(self)(self.walk, module, {}, self.depth + 1, self.is_main)
        inner.is_certain = self.is_certain
        if not given and module.makes_parser(function):
            pass  # a factory: each call makes another parser
        elif not given:
            self.walk.visited.add(key)
        bound = self._bind(function, node, positional, keywords, inner)
        for made in given:
            if made not in bound:
                made.open(f"`{function.name}` may add options")
        inner.body(function.body)
        results = list(dict.fromkeys(inner.returned))
        if len(results) > 1:
            for made in results:
                made.open("a function returns one of several parsers")
        return results[0] if results else None

    def _bind(
        self,
        function: Function,
        node: ast.Call,
        positional: list[Made | None],
        keywords: dict[str, Made | None],
        inner: Calls,
    ) -> list[Made]:
        """Give the parameters their parsers; those that were bound."""
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        bound: list[Made] = []
        spread = any(isinstance(a, ast.Starred) for a in node.args)
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        defaults.update(
            {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
        )
        inner.parameters = {name: defaults.get(name) for name in (*names, *(a.arg for a in arguments.kwonlyargs))}
        for name, value, made in zip(names, node.args, positional, strict=False):
            inner.parameters[name] = self._given(value)
            if made is not None and not spread:
                inner.names[name] = made
                bound.append(made)
        for keyword in node.keywords:
            if keyword.arg in inner.parameters:
                inner.parameters[keyword.arg] = self._given(keyword.value)
                made = keywords.get(keyword.arg)
                if made is not None:
                    inner.names[keyword.arg] = made
                    bound.append(made)
        return bound

    def _given(self, value: ast.expr) -> ast.expr | None:
        """What a word of a call is; a parameter of this function is what its own caller gave."""
        return self.parameters.get(value.id, value) if isinstance(value, ast.Name) else value
