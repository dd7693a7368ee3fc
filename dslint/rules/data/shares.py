"""Whether ranks run a loop a different number of times because each takes its share of the work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.events import Alt, Event, Loop
from dslint.python.values import ClassAtom, Instance
from dslint.python.varies import CHOSEN, MISSING, RANKED
from dslint.rules.data import evened
from dslint.rules.ranks import parted

if TYPE_CHECKING:
    from dslint.python.queries.parting import Parting
    from dslint.python.source import Module
    from dslint.rules.runs import RunQuery

# The size of a part is rounded up: the last ones are shorter.
_ROUNDED_UP = re.compile(r"ceil|-\s*\(\s*-|//[^\n]*\+\s*1\b|-\s*1\s*\)\s*//")
_RANGE = re.compile(r"range\([^,]*,\s*(\d+)\s*,")
# How many assignments lead from a loop to where its items are cut.
_MOST_NAMES = 4
_BY_RANK = re.compile(r"(?i)rank|process_index|split_between_processes")
# As many groups as there are machines: no share of any work.
_OF_WORLD = re.compile(r"(?i)%[^\n]*(?:world|num_proc|nproc)")
_GROUPS = re.compile(r"(?i)world_?size(?:\(\))?\s*//")
_RANKS = re.compile(r"(?i)world_?size|num_replicas|num_proc|n_?gpu")
_WORDS = re.compile(r"[^\W\d]\w*")


def is_uneven(run: RunQuery, parting: Parting) -> bool:
    """Return whether ranks run a loop a different number of times because each takes its share of the work."""
    if not (parting.is_loop or parting.is_share) or not parted.is_share_of_work(parting):
        return False
    if parting.varies & (MISSING | CHOSEN) or _is_exchanged(run, parting):
        return False  # what the batch of a rank lacks is no share of the work
    asked = parted.test_node(parting)
    if isinstance(parting.test.node, ast.While) and _is_read(run, parting.test.module, asked):
        return False  # the number of a step that a file says
    text = parting.test.module.text(asked)
    total = known_total(parting)
    if total is not None:  # whether it comes out even is a sum; an odd number does for no even number of ranks
        return total % run.context.world_size.get_or(2) != 0
    if parting.is_loop and (_may_break(parting.test.node) or _GROUPS.search(text) or _is_bounded(asked)):
        return False
    cuts = [asked, *_definitions(parting)]
    if any(map(evened.is_filled, cuts)):
        return False
    told = frozenset(id(node) for each in cuts for node in ast.walk(each))
    around = list(_around(run, parting))
    if parting.is_share:
        return not any(evened.evens(scope, told) for scope in around)
    sizes = _sizes(parting)
    if sizes is not None:
        return _ROUNDED_UP.search(sizes) is not None and not any(evened.fills(scope, told) for scope in around)
    loaders = list(_loaders(run, parting))
    sources = [place for event in loaders for place in _code(event)]
    by_rank = [(module, node) for module, node in sources if _BY_RANK.search(module.text(node))]
    if loaders and not run.has("shards-data") and not by_rank:
        return False  # what ranks have made on ways of their own is mostly the same
    scopes = (*around, *(node for _, node in by_rank or sources), *_own_class(parting))
    return not any(evened.evens(scope, told) for scope in scopes) and not _is_evened_before(run, parting)


def known_total(parting: Parting) -> int | None:
    """Return the number of items that a range names which deals them out."""
    known = _RANGE.search(parting.test.module.text(parted.test_node(parting)))
    return int(known[1]) if known is not None else None


def _is_read(run: RunQuery, module: Module, asked: ast.AST) -> bool:
    """Return whether a test compares something that was read from a file."""
    if not isinstance(asked, ast.Compare):
        return False
    reads = {id(found.event.node) for found in run.occurrences("reads-file")}
    pieces = run.derived.of(module, [asked]) if reads else None
    return any(id(node) in reads for _, piece in pieces or () for node in ast.walk(piece))


def _is_exchanged(run: RunQuery, parting: Parting) -> bool:
    """Return whether the items come from one side of a test of the rank that sent them to the other."""
    found = parted.origin(run, parting) if parting.is_loop else None
    if found is None or (_BY_RANK.search(found[0].text(found[1])) and not isinstance(found[1], ast.If)):
        return False
    sent = run.occurrences("collective", "point-to-point")
    tests = {id(n): n.node for h in sent for n in h.around if isinstance(n, Alt) and n.varies & RANKED}
    return any(found[1] in ast.walk(test) for test in tests.values())


def _own_class(parting: Parting) -> Iterator[ast.AST]:
    """Yield the class of the project over whose object a loop goes."""
    subject = parting.test.subject.single if isinstance(parting.test, Loop) and parting.test.subject else None
    if isinstance(subject, Instance) and isinstance(subject.cls, ClassAtom):
        yield subject.cls.node


def _is_evened_before(run: RunQuery, parting: Parting) -> bool:
    """Return whether a function that calls the one with the loop divides by the number of ranks."""
    function = parted.function_around(parting.test.module, parting.test.node)
    if function is None:
        return False
    for module in run.machine.program.modules():
        if f"{function.name}(" not in module.code:
            continue
        calls = module.nodes_of(ast.Call)
        for call in (n for n in calls if ast.unparse(n.func).rpartition(".")[2] == function.name):
            if evened.divides_by_ranks(parted.function_around(module, call) or module.tree):
                return True
    return False


def _around(run: RunQuery, parting: Parting) -> Iterator[ast.AST]:
    """Yield the function of the loop, and the one in which the items are cut; the module where there is none."""
    module = parting.test.module
    scopes: list[ast.AST] = [parted.function_around(module, parting.test.node) or module.tree]
    place = parted.origin(run, parting)
    if place is not None:
        scopes.append(parted.function_around(*place) or place[0].tree)
    yield from scopes
    called = {ast.unparse(n.func) for n in _definitions(parting) if isinstance(n, ast.Call)}
    called |= {name for scope in scopes for name in _counted_by(scope)}
    for other in run.machine.program.modules() if called else ():
        yield from (n for n in other.nodes_of(ast.FunctionDef) if n.name in called)


def _counted_by(scope: ast.AST) -> Iterator[str]:
    """Yield the functions that say where a list is cut off: `items[: fewest(len(items))]`."""
    for node in (n for n in ast.walk(scope) if isinstance(n, ast.Slice) and n.upper is not None and n.lower is None):
        calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
        yield from (ast.unparse(call.func).rpartition(".")[2] for call in calls)


def cut(run: RunQuery, parting: Parting) -> tuple[Module, ast.AST]:
    """Return where the items are cut into shares: by the data set, or in the function of the loop.

    Where nothing there says so, it is what the loop goes through.
    """
    for loader in _loaders(run, parting):
        for home, code in (place for source in loader.sources for place in source.code):
            cuts = [n for n in ast.walk(code) if isinstance(n, ast.Call | ast.Subscript | ast.Compare)]
            texts = {n: ast.unparse(n) for n in cuts}
            shares = [n for n in cuts if _BY_RANK.search(texts[n]) and _RANKS.search(texts[n])]
            if shares:
                return home, shares[-1]
    module = parting.test.module
    found = [node for node in _definitions(parting) if _BY_RANK.search(module.text(node))]
    return module, found[-1] if found else parted.test_node(parting)


def _definitions(parting: Parting) -> Iterator[ast.expr | ast.AST]:
    """Yield what a loop goes through, and what the variables hold that lead there, each assigned once."""
    node = parted.test_node(parting)
    yield node
    if not isinstance(parting.test, Loop):
        return
    function = parted.function_around(parting.test.module, parting.test.node) or parting.test.module.tree
    given: list[tuple[ast.expr | None, ast.expr]] = []
    for n in ast.walk(function):
        if isinstance(n, ast.Assign) and len(n.targets) == 1:
            given.append((n.targets[0], n.value))
        elif isinstance(n, ast.With | ast.AsyncWith):
            given += [(item.optional_vars, item.context_expr) for item in n.items]
    for _ in range(_MOST_NAMES):
        name = _subject(node)
        values = [value for target, value in given if isinstance(target, ast.Name) and target.id == name]
        if len(values) != 1 or not isinstance(values[0], ast.Subscript | ast.Call | ast.ListComp):
            return
        node = values[0]
        yield node


def _subject(node: ast.AST) -> str:
    """Return the variable that is iterated over: `mine`, `enumerate(mine)`, `tqdm(mine)`, `DataLoader(mine)`."""
    for _ in range(_MOST_NAMES):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "range" and node.args:
            end = node.args[min(len(node.args) - 1, 1)]  # the items are counted: `range(0, len(mine), size)`
            node = end if ast.unparse(end).startswith("len(") else node.args[0]
        elif isinstance(node, ast.Call) and node.args and not isinstance(node.func, ast.Attribute):
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _sizes(parting: Parting) -> str | None:
    """Return the code that says how large consecutive parts are; `None` where no such slice or range is in sight."""
    found = [n for node in _definitions(parting) for n in ast.walk(node)]
    slices = [(n.lower, n.upper) for n in found if isinstance(n, ast.Slice) and n.step is None]
    ranges = [tuple(n.args) for n in found if isinstance(n, ast.Call) and ast.unparse(n.func) == "range"]
    bounds = [part for pair in (*slices, *(r for r in ranges if len(r) == 2)) for part in pair if part is not None]
    if not bounds:
        return None
    module = parting.test.module
    function = parted.function_around(module, parting.test.node) or module.tree
    texts = dict.fromkeys(module.text(part) for part in bounds)
    assigns = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    for _ in range(_MOST_NAMES):
        names = {word for text in texts for word in _WORDS.findall(text)}
        named = (a for a in assigns if isinstance(a.targets[0], ast.Name) and a.targets[0].id in names)
        texts.update(dict.fromkeys(module.text(a.value) for a in named))
    return "\n".join(texts)


def _may_break(loop: ast.AST) -> bool:
    """Return whether a loop has a `break` of its own: where it ends, its items may not decide."""
    pending = list(getattr(loop, "body", ()))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.FunctionDef | ast.ClassDef):
            pending.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
        elif isinstance(node, ast.For | ast.While | ast.AsyncFor):
            pending.extend(node.orelse)
    return False


def _is_bounded(asked: ast.AST) -> bool:
    """Return whether a number of steps ends a loop before its items do: `zip(range(n), items)`, `islice(items, n)`."""
    for call in (n for n in ast.walk(asked) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func).rpartition(".")[2]
        ends = call.args if name == "zip" else call.args[1:] if name == "islice" and len(call.args) == 2 else []
        counts = [n for n in ends if name == "islice" or ast.unparse(n).startswith("range(")]
        if any(not _BY_RANK.search(ast.unparse(n)) for n in counts):
            return True
    return False


def _loaders(run: RunQuery, parting: Parting) -> Iterator[Event]:
    """Yield the calls that make the loader which a loop goes through."""
    made = parting.test.items if isinstance(parting.test, Loop) else frozenset()
    for happening in run.happenings("makes-loader") if made else ():
        if happening.event.node in made:
            yield happening.event


def _code(loader: Event) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the code of the data sets and samplers behind a loader, and what else of the project it gets."""
    for source in loader.sources:
        yield from source.code
    for name, value in loader.arguments.items():
        for atom in value.atoms if name in loader.nodes else ():
            if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
                yield atom.cls.module, atom.cls.node
        if name in loader.nodes:
            yield from ((loader.module, node) for node in _behind(loader, loader.nodes[name]))


def _behind(loader: Event, node: ast.expr) -> Iterator[ast.expr]:
    """Yield an argument of a loader, and what its variable is given there."""
    yield node
    function = parted.function_around(loader.module, loader.node) or loader.module.tree
    if isinstance(node, ast.Name):
        for given in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
            if any(isinstance(target, ast.Name) and target.id == node.id for target in given.targets):
                yield given.value
