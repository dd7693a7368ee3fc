"""Static reading of a shell script: the commands it runs, with the words and the environment they receive.

The script is walked once in the order of the text. A variable has a value where the last assignment before it is
certain to have run; what a branch, a loop, a function or a sourced file may have changed is unknown afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch import Word
from dslint.model.shelleffects import OPENERS, SETTERS, assigned_names, command_names, side_effects, text_names
from dslint.model.shellscope import Scope, Template
from dslint.model.shellwords import UnknownWordError, Value, expand, expand_assignment, expand_quoted
from dslint.parse.shell import ShellDoc

if TYPE_CHECKING:
    from tree_sitter import Node

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_SEQUENCES = frozenset({"program", "do_group", "compound_statement", "then", "negated_command"})
# Unquoted names that usually hold several words, and "$@" / "${array[@]}", which always may.
_MANY = re.compile(
    r"""\$[{]?(?:[@*]|\w+\[[@*]\]|\w*(?:ARGS?|OPTS?|OPTIONS?|FLAGS?|CMD|COMMANDS?|PARAMS?|EXTRAS?|LAUNCH\w*)\w*\b)""",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A simple command: its words after expansion, its prefix assignments, and the state it is started in."""

    node: Node
    words: tuple[Word, ...]
    env: dict[str, Fact[str]]
    scope: Scope


def read_invocations(doc: ShellDoc, wanted: Callable[[str], bool], scope: Scope | None = None) -> list[Invocation]:
    """The commands whose raw text is ``wanted``, in the order of the text."""
    reader = _Reader(doc, wanted)
    reader.visit(doc.tree.root_node, scope or Scope())
    return reader.found


class _Reader:
    """One walk over one document."""

    def __init__(self, doc: ShellDoc, wanted: Callable[[str], bool]) -> None:
        self.doc = doc
        self.wanted = wanted
        self.found: list[Invocation] = []
        # Names that functions of this file set: any call of one may change them.
        self.functions: dict[str, set[str] | None] = {}

    def visit(self, node: Node, scope: Scope) -> None:
        """Run one statement in ``scope``."""
        kind = node.type
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(node, scope)
        elif node.is_error or kind == "ERROR":
            scope.forget(assigned_names(self.doc, node))
        elif kind in _SEQUENCES:
            if kind == "compound_statement" and self.doc.raw(node).startswith("(("):
                scope.forget(side_effects(self.doc.raw(node)))
            else:
                self._sequence(node.children, scope)
        elif node.is_named and kind != "comment":
            scope.forget(side_effects(self.doc.raw(node)))

    def _sequence(self, nodes: list[Node], scope: Scope) -> None:
        for index, child in enumerate(nodes):
            if not child.is_named:
                continue
            background = index + 1 < len(nodes) and nodes[index + 1].type == "&"
            self.visit(child, scope.copy() if background else scope)

    def _branch(self, nodes: list[Node], scope: Scope) -> Scope:
        inner = scope.copy()
        self._sequence(nodes, inner)
        return inner

    # Statements

    def _list(self, node: Node, scope: Scope) -> None:
        operands: list[tuple[str, Node]] = []
        while node.type == "list":
            parts = [c for c in node.children if c.type != "comment"]
            if len(parts) < 3:
                break
            operands.append((parts[1].type, parts[2]))
            node = parts[0]
        self.visit(node, scope)
        success = scope.copy()
        for operator, operand in reversed(operands):
            if operator == "&&":
                self.visit(operand, success)
            else:
                other = success.copy()
                self.visit(operand, other)
                if not re.match(r"(exit|return)\b", self.doc.raw(operand)):
                    success.merge(other)
        scope.merge(success)

    def _pipeline(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self.visit(child, scope.copy())

    def _subshell(self, node: Node, scope: Scope) -> None:
        self._sequence(node.children, scope.copy())

    def _redirected_statement(self, node: Node, scope: Scope) -> None:
        extra = [c for c in node.named_children if c.type in _REDIRECTS]
        for child in node.named_children:
            if child.type == "command":
                self._command(child, scope, extra)
            elif child.type not in _REDIRECTS:
                self.visit(child, scope)
        # ``cmd <<EOF | tee log``: the grammar hangs the rest of the line on the heredoc.
        for child in extra:
            for inner in child.named_children:
                if inner.type in ("pipeline", "list"):
                    self._sequence(inner.children, scope.copy())

    def _if_statement(self, node: Node, scope: Scope) -> None:
        children = node.children
        at = next((i for i, c in enumerate(children) if c.type == "then"), len(children))
        self._sequence(children[:at], scope)
        branches = [c for c in children[at:] if c.type in ("elif_clause", "else_clause")]
        ends = [self._branch([c for c in children[at:] if c not in branches], scope)]
        for clause in branches:
            if clause.type == "elif_clause":
                then = next((i for i, c in enumerate(clause.children) if c.type == "then"), 0)
                self._sequence(clause.children[:then], scope)
                ends.append(self._branch(clause.children[then:], scope))
            else:
                ends.append(self._branch(clause.children, scope))
        if branches and branches[-1].type == "else_clause":
            first = ends.pop(0)
            scope.values, scope.exported, scope.cwd = first.values, first.exported, first.cwd
            scope.open, scope.export_all = first.open, first.export_all
        for end in ends:
            scope.merge(end)

    def _case_statement(self, node: Node, scope: Scope) -> None:
        ends = [self._branch(c.named_children[1:], scope) for c in node.named_children if c.type == "case_item"]
        for end in ends:
            scope.merge(end)

    def _loop(self, node: Node, scope: Scope) -> None:
        # From the second turn on, a variable may hold what the body gave it.
        scope.forget(assigned_names(self.doc, node))
        scope.merge(self._branch(node.children, scope))

    _while_statement = _for_statement = _c_style_for_statement = _loop

    def _function_definition(self, node: Node, scope: Scope) -> None:
        names = assigned_names(self.doc, node)
        self.functions[self.doc.raw(node.named_children[0])] = names
        # The body runs at some call below: whatever the rest of the file sets may have been set by then.
        inner = scope.copy()
        inner.forget(names)
        after = node.next_sibling
        while after is not None:
            inner.forget(assigned_names(self.doc, after))
            after = after.next_sibling
        body = node.child_by_field_name("body")
        if body is not None:
            self.visit(body, inner)

    # Assignments

    def _variable_assignments(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self.visit(child, scope)

    def _variable_assignment(self, node: Node, scope: Scope, export: bool = False) -> None:
        name_node, value_node = node.named_children[0], node.named_children[-1]
        raw = self.doc.raw(node)
        name, _, _ = self.doc.raw(name_node).partition("[")
        simple = name_node.type == "variable_name" and node.parent is not None and not node.parent.is_error
        value = self._value(node, value_node if value_node != name_node else None, scope) if simple else None
        if value is not None and raw[len(name) :].startswith("+="):
            value = _appended(scope.values.get(name), value)
        scope.forget(side_effects(raw))
        scope.assign(name, value, export)
        if simple and self.wanted(raw):
            self._keep_template(name, node, scope)

    def _keep_template(self, name: str, node: Node, scope: Scope) -> None:
        """``run="torchrun ..."``: a later ``eval $run`` reads the text as it stands here."""
        span = self.doc.local(node)
        match = re.fullmatch(r"\w+=(?:\"([^\"`]*)\"|'([^']*)')", self.doc.raw(node), re.DOTALL)
        if match is None or self.doc.anchor is not None or re.search(r"\\[^\n]", match[1] or ""):
            return
        start = span.start + match.start(1 if match[1] is not None else 2)
        scope.templates[name] = Template(match[1] or match[2] or "", start + self.doc.base, scope.copy())

    def _value(self, node: Node, value: Node | None, scope: Scope) -> Value | None:
        lookup = scope.lookup()
        try:
            if value is not None and value.type == "array":
                items = [w for c in value.named_children if c.type != "comment" for w in self._element(c, scope)]
                return Value("", tuple(items), (self.doc.location(node), *lookup.used))
            # The grammar ends some values early (``A=x$((1))``): read up to the end of the word instead.
            raw = self.doc.raw(node)
            text = expand_assignment(raw[raw.index("=") + 1 :], lookup)
        except UnknownWordError:
            return None
        return Value(text, None, (self.doc.location(node), *lookup.used))

    def _element(self, node: Node, scope: Scope) -> list[str]:
        if node.type == "variable_assignment" or self.doc.raw(node).startswith("["):
            raise UnknownWordError
        return expand(self.doc.raw(node), scope.lookup())

    def _declaration_command(self, node: Node, scope: Scope) -> None:
        words = [self.doc.raw(c) for c in node.children if c.type == "word"]
        export = node.children[0].type == "export" or any(re.fullmatch(r"-[a-zA-Z]*x[a-zA-Z]*", w) for w in words)
        plain = all(re.fullmatch(r"-[xrga]+", w) for w in words if w.startswith("-"))
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._variable_assignment(child, scope, export)
                name = self.doc.raw(child.named_children[0])
            elif child.type == "variable_name":
                name = self.doc.raw(child)
                if export:
                    scope.exported.add(name)
            else:
                scope.forget(side_effects(self.doc.raw(child)))
                continue
            if not plain:
                scope.values[name] = None

    def _unset_command(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            name = self.doc.raw(child)
            scope.values.pop(name, None)
            scope.exported.discard(name)

    # Commands

    def _command(self, node: Node, scope: Scope, redirects: list[Node] | None = None) -> None:
        raw = self.doc.raw(node)
        head = node.child_by_field_name("name")
        name = self.doc.raw(head) if head is not None else ""
        if self.wanted(raw):
            self._emit(node, scope, redirects or [])
        if name and (name in self.functions or name in OPENERS or name in SETTERS or name in _STATE):
            self._builtin(name, node, raw, scope, redirects or [])
        if "=" in raw or "((" in raw:
            self._default_assignment(name, node, raw, scope)

    def _emit(self, node: Node, scope: Scope, redirects: list[Node]) -> None:
        inner = scope.copy()
        prefixed: dict[str, Fact[str]] = {}
        words: list[Word] = []
        for child in [*node.children, *(w for r in redirects for w in r.named_children[1:] if _after(r, w))]:
            if child.type == "variable_assignment":
                self._variable_assignment(child, inner, export=True)
                name = self.doc.raw(child.named_children[0])
                value = inner.values.get(name)
                prefixed[name] = known(value.text, *value.origins) if value else unknown(f"`{name}` is computed")
            elif child.is_named and child.type not in _REDIRECTS and child.type != "comment":
                words += self._words(child, scope)
        env = {**scope.environment(), **prefixed}
        words.sort(key=lambda w: w.location.span.start)
        self.found.append(Invocation(node, tuple(words), env, inner))

    def _words(self, node: Node, scope: Scope) -> list[Word]:
        raw = self.doc.raw(node)
        location = self.doc.location(node)
        lookup = scope.lookup()
        try:
            texts = expand(raw, lookup)
        except UnknownWordError:
            return [Word(None, raw, location, spreads=_spreads(raw))]
        origins = tuple(lookup.used)
        return [Word(text, raw, location, origins) for text in texts]

    def _default_assignment(self, name: str, node: Node, raw: str, scope: Scope) -> None:
        """``: ${X:=4}`` gives X a value unless it has one."""
        names = side_effects(raw)
        match = re.fullmatch(r""":\s+(["']?)\$\{(\w+):?=([^}"'$`\\]*)\}\1""", raw) if name == ":" else None
        if match and match[2] not in scope.values and not scope.open:
            scope.assign(match[2], Value(match[3], None, (self.doc.location(node),)))
        elif not (match and scope.values.get(match[2]) is not None and scope.values[match[2]] != Value()):
            scope.forget(names)

    def _builtin(self, name: str, node: Node, raw: str, scope: Scope, redirects: list[Node]) -> None:
        arguments = [self.doc.raw(c) for c in node.named_children[1:] if c.type != "variable_assignment"]
        if name in self.functions:
            scope.forget(set() if self.functions[name] == set() else _union(self.functions))
        elif name == "cd":
            scope.cwd = self._changed(arguments, scope)
        elif name == "set":
            self._set(arguments, scope)
        elif name == "eval" and (kept := kept_template([w.strip('"') for w in arguments], scope)) is not None:
            scope.forget(text_names(kept.text))
        elif name == "read" and (body := self._read_heredoc(arguments, scope, redirects)) is not None:
            scope.assign(arguments[-1], body)
        else:
            scope.forget(command_names(raw))

    def _set(self, arguments: list[str], scope: Scope) -> None:
        flags = " ".join(arguments).partition("--")[0]
        if re.search(r"(^|\s)-\w*a|allexport", flags):
            scope.export_all = "+o" not in flags
        elif re.search(r"(^|\s)\+\w*a", flags):
            scope.export_all = False

    def _read_heredoc(self, arguments: list[str], scope: Scope, redirects: list[Node]) -> Value | None:
        """``read -r -d '' NAME <<EOF``: the way scripts keep a long command in a variable."""
        flags = "".join(arguments[:-1]).replace('"', "").replace("'", "")
        if flags not in ("-r-d", "-d-r", "-rd") or len(redirects) != 1 or "IFS" in scope.values:
            return None
        parts = {c.type: c for c in redirects[0].children}
        if "heredoc_body" not in parts or "<<" not in parts or len(parts) != 4:
            return None
        body = self.doc.raw(parts["heredoc_body"])
        lookup = scope.lookup()
        if not re.search(r"[\"'\\]", self.doc.raw(parts["heredoc_start"])):
            try:
                body = expand_quoted(body, lookup)
            except UnknownWordError:
                return None
        elif "\\" in body:
            return None
        return Value(body.strip(" \t\n"), None, (self.doc.location(redirects[0]), *lookup.used))

    def _changed(self, arguments: list[str], scope: Scope) -> Fact[str]:
        """The directory after ``cd``."""
        if len(arguments) != 1:
            return unknown("`cd` without a readable directory")
        place = self.doc.source.path.rpartition("/")[0] or "."
        if _OWN_DIRECTORY.fullmatch(arguments[0]):
            tail = _OWN_DIRECTORY.fullmatch(arguments[0])
            return known(_joined(place, tail["tail"].strip('"/') if tail else ""))
        try:
            target = expand_assignment(arguments[0], scope.lookup())
        except UnknownWordError:
            return unknown(f"`cd {arguments[0]}`")
        if target.startswith("/"):
            return known(_joined("", target))
        if scope.cwd.is_unknown:
            return scope.cwd
        return known(_joined(scope.cwd.get_or(""), target))


_VARIABLE = re.compile(r"""["']?\$\{?(\w+)\}?["']?""")
_STATE = frozenset({"cd", "set", "command", "builtin", "pushd", "popd"})
_OWN_DIRECTORY = re.compile(
    r"""["']?(?:\$\(\s*dirname\s+(?:--\s+)?["']?\$(?:0|\{0\}|\{?BASH_SOURCE(?:\[0\])?\}?)["']?\s*\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\})["']?(?P<tail>(?:/[\w./-]*)?["']?)"""
)


def kept_template(raws: list[str], scope: Scope) -> Template | None:
    """The command line that ``$run`` stands for; every word of an unquoted variable carries the same text."""
    match = _VARIABLE.fullmatch(raws[0]) if len(set(raws)) == 1 else None
    return scope.templates.get(match[1]) if match else None


def _joined(base: str, tail: str) -> str:
    """A normalised path; ``..`` beyond the begin stays."""
    absolute = tail.startswith("/")
    parts: list[str] = []
    for part in ([] if absolute else base.split("/")) + tail.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return ("/" if absolute or base.startswith("/") else "") + "/".join(parts)


def _appended(old: Value | None, new: Value) -> Value | None:
    if old is None:
        return None
    origins = (*old.origins, *(o for o in new.origins if o not in old.origins))
    if new.items is not None and old.items is not None:
        return Value("", old.items + new.items, origins)
    if new.items is None and old.items is None:
        return Value(old.text + new.text, None, origins)
    return None


def _union(functions: dict[str, set[str] | None]) -> set[str] | None:
    names: set[str] = set()
    for assigned in functions.values():
        if assigned is None:
            return None
        names |= assigned
    return names


def _after(redirect: Node, word: Node) -> bool:
    """Words that the grammar put into a redirection behind its target: ``cmd >log --flag``."""
    target = redirect.child_by_field_name("destination")
    return redirect.type == "file_redirect" and target is not None and word.start_byte > target.start_byte


def _spreads(raw: str) -> bool:
    """Whether an unknown word may stand for several."""
    if re.match(r"""["']""", raw) and "@" not in raw:
        return False
    return bool(_MANY.search(raw))
