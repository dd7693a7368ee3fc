"""What Python refuses when it comes to a line: whether a run certainly comes there, and who catches the exception."""

from __future__ import annotations

import ast
import re

from dslint.core.finding import Severity
from dslint.python.events import Alt, Event, Node, Seq, Try, walk
from dslint.python.jobtests import asks_for_job
from dslint.python.launches import names_in
from dslint.python.queries.order import deciding
from dslint.python.source import Module
from dslint.rules.names.latefailures import catches, compares_text
from dslint.rules.runs import Happening

# Who asks what something takes or has before using it.
_ASKS = re.compile(r"\bsignature\(|getfullargspec\(|co_varnames|__code__|\bhasattr\(")


def is_caught(found: Happening, *kinds: str) -> bool:
    """Return whether a handler around catches the exception, by its name or a class above it."""
    return any(
        isinstance(parent, Try)
        and catches(getattr(parent.node, "handlers", ()), *kinds)
        and any(node is found.event for node in walk(parent.body))
        for parent in found.around
    )


def is_asked(module: Module, node: ast.AST) -> bool:
    """Return whether the function around a place looks at signatures or attributes: it may know what it does."""
    around: ast.AST | None = node
    while around is not None and not isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        around = module.parents.get(around)
    return around is not None and _ASKS.search(module.text(around)) is not None


def severity(found: Happening) -> Severity:
    """Return how sure it is that a run comes to an event: an error where neither options nor data decide on a way.

    A note where a text chooses among several: `if args.dataset == "coco"`, in code that a script takes over as a whole
    and uses a part of.
    """
    below = Severity.INFO if any(map(_is_one_of_many, found.around)) else Severity.WARNING
    if found.entry.kind != "script" or found.event.may:
        return below
    ways = deciding(found.entry.tree, found.event)
    return Severity.ERROR if any(all(map(_is_passed, way.tests)) for way in ways) else below


def _is_one_of_many(node: Node) -> bool:
    """Return whether a test compares something with a text, and nobody knows how it ends."""
    if not isinstance(node, Alt) or not node.then_lanes & node.else_lanes:
        return False
    test = node.asks or getattr(node.node, "test", None)
    return test is not None and compares_text(test, "argv")


def _is_passed(test: Alt) -> bool:
    """Return whether some rank of a job comes by a test for certain: the rank decides, or that there is a job."""
    if not test.then_lanes & test.else_lanes:
        return True
    return test.test is not None and isinstance(test.node, ast.If) and asks_for_job(test.node.test, test.test)


def rests_on_default(found: Happening) -> bool:
    """Return whether code that nothing calls comes to an event only by what a parameter with a default may be.

    Who calls it may give that parameter always, or never: `if query is None: self.norm(x)`.
    """
    if found.entry.kind == "script":
        return False
    tests = (alt for alt in found.around if isinstance(alt, Alt) and alt.then_lanes & alt.else_lanes)
    return any(_with_default(alt) & names_in(getattr(alt.node, "test", alt.node)) for alt in tests)


def _with_default(alt: Alt) -> set[str]:
    """Return the parameters with a default of the functions around a test."""
    found: set[str] = set()
    around: ast.AST | None = alt.node
    while around is not None:
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            args = around.args
            plain = [*args.posonlyargs, *args.args]
            found |= {p.arg for p in plain[len(plain) - len(args.defaults) :]}
            found |= {p.arg for p, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default}
        around = alt.module.parents.get(around)
    return found


def written_call(found: Happening) -> tuple[Module, ast.AST]:
    """Return the call that gives the arguments: outside of wrappers that hand on what they get (`f(*args, **kw)`)."""
    module, node = found.event.module, found.event.node
    for call in reversed(found.calls):
        if not isinstance(node, ast.Call) or not _hands_on(node):
            break
        module, node = call.module, call.node
    return module, node


def _hands_on(node: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)


def is_one_of_several(found: Happening, tag: str) -> bool:
    """Return whether the expression may mean several things, and one of them has no event with this tag."""
    chosen = next((alt for alt in found.around if _is_choice(alt, found.event)), None)
    return chosen is not None and not _in_all(chosen, found.event, tag)


def _is_choice(node: Node, event: Event) -> bool:
    return isinstance(node, Alt) and node.node is event.node and node.test is None


def _in_all(chosen: Node, event: Event, tag: str) -> bool:
    def happens(block: Seq) -> bool:
        for item in block.items:
            if isinstance(item, Event) and tag in item.tags and item.node is event.node:
                return True
            if _is_choice(item, event):
                return _in_all(item, event, tag)
        return False

    return isinstance(chosen, Alt) and happens(chosen.then) and happens(chosen.orelse)
