"""Whether ranks run a loop a different number of times because each takes its share of the work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.events import Event, Loop
from dslint.python.values import ClassAtom, Instance
from dslint.python.varies import MISSING
from dslint.rules import parted

if TYPE_CHECKING:
    from dslint.python.queries.parting import Parting
    from dslint.python.source import Module
    from dslint.rules.runs import RunQuery

# Words of code that gives all ranks the same number of items ...
_FILLED = (
    r"(?<!tokenizer\.)(?<!processor\.)\bpad|[Pp]adding|drop_last|even_batches|\bJoin\b|\.join\(\)|min_len|max_len"
    r"|truncate"
)
_EVENED = re.compile(rf"//|%(?!\()|ceil|{_FILLED}")
# ... where consecutive parts are cut these alone: the sizes of the parts come out of a division.
_FILLS = re.compile(rf"%(?!\()|{_FILLED}")
# What deals items out, one by one: `i % world_size == rank` is no division that comes out even.
_DEALS = re.compile(r"%(?!\()\s*[\w.]+(?:\(\))?\s*[=!]=\s*(?!\d)[\w.]+")
# Every so many turns; room around an image; a place in a text.
_OTHERS = re.compile(
    r"(?i)\b[\w.]*(?:step|iter|epoch|idx|batch|count)[\w.]*(?:\s*\+\s*1\s*\))?\s*%\s*"
    r"(?![\w.]*(?:world|rank|proc|repl|size|gpu))[\w.]+|\bpadding(?:_idx|_mode)?\s*=\s*[\d'\"(]|%[.\d]*[sdfrge]\b|%\s*\d+\b(?!\s*[*)])"
)
# The size of a part is rounded up: the last ones are shorter.
_ROUNDED_UP = re.compile(r"ceil|-\s*\(\s*-|//[^\n]*\+\s*1\b|-\s*1\s*\)\s*//")
_RANGE = re.compile(r"range\([^,]*,\s*(\d+)\s*,")
# How many assignments lead from a loop to where its items are cut.
_MOST_NAMES = 4
_BY_RANK = re.compile(r"(?i)rank|process_index")
# As many groups as there are machines: no share of any work.
_OF_WORLD = re.compile(r"(?i)%[^\n]*(?:world|num_proc|nproc)")
_GROUPS = re.compile(r"(?i)world_?size(?:\(\))?\s*//")
_WORDS = re.compile(r"[^\W\d]\w*")


def is_uneven(run: RunQuery, parting: Parting) -> bool:
    """Return whether ranks run a loop a different number of times because each takes its share of the work."""
    if not (parting.is_loop or parting.is_share) or not parted.is_share_of_work(parting):
        return False
    if parting.varies & MISSING:
        return False  # what the batch of a rank lacks is no share of the work
    asked = parted.test_node(parting)
    text = parting.test.module.text(asked)
    known = _RANGE.search(text)
    if known is not None:  # whether it comes out even is a sum
        ranks = run.context.world_size.get_or(0)
        return bool(ranks) and int(known[1]) % ranks != 0
    if parting.is_loop and (_may_break(parting.test.node) or _GROUPS.search(text) or _is_bounded(asked)):
        return False
    around = _code_around(run, parting).replace(text, "")
    for node in _definitions(parting):
        around = around.replace(parting.test.module.text(node), "")
    if parting.is_share:
        around = _OTHERS.sub("", around)
        return not _EVENED.search(around)
    around = around if isinstance(parting.test.node, ast.While) else _plain(around)
    sizes = _sizes(parting)
    if sizes is not None:
        return _ROUNDED_UP.search(sizes) is not None and not _FILLS.search(around)
    loaders = list(_loaders(run, parting))
    sources = [_plain(text) for event in loaders for text in _code(event)]
    if loaders and not run.has("shards-data") and not any(map(_BY_RANK.search, sources)):
        return False  # what ranks have made on ways of their own is mostly the same
    return not any(map(_EVENED.search, (around, *sources, *_own_class(parting), *_evened_before(run, parting))))


def _own_class(parting: Parting) -> Iterator[str]:
    """Yield the code of the class of the project over whose object a loop goes."""
    subject = parting.test.subject.single if isinstance(parting.test, Loop) and parting.test.subject else None
    if isinstance(subject, Instance) and isinstance(subject.cls, ClassAtom):
        yield _plain(subject.cls.module.text(subject.cls.node))


def _plain(text: str) -> str:
    """Return code without what looks like a division and is none that comes out even."""
    return _OTHERS.sub("", _DEALS.sub("", text))


def _evened_before(run: RunQuery, parting: Parting) -> Iterator[str]:
    """Yield lines that divide by the number of ranks, of functions that call the one with the loop."""
    function = parted.function_around(parting.test.module, parting.test.node)
    if function is None:
        return
    for module in run.machine.program.modules():
        if f"{function.name}(" not in module.code:
            continue
        calls = (n for n in ast.walk(module.tree) if isinstance(n, ast.Call))
        for call in (n for n in calls if ast.unparse(n.func).rpartition(".")[2] == function.name):
            text = module.text(parted.function_around(module, call) or module.tree)
            yield from (line for line in text.split("\n") if _OF_WORLD.search(line))


def _code_around(run: RunQuery, parting: Parting) -> str:
    """Return the code of the function of the loop, and of the one in which the items are cut."""
    place = parted.origin(run, parting)
    if place is None:
        return parted.around(parting)
    module, node = place
    function = parted.function_around(module, node)
    text = module.source.text if function is None else module.text(function)
    around = parted.around(parting)
    return around if text in around else f"{around}\n{text}"


def cut(parting: Parting) -> tuple[Module, ast.AST]:
    """Return where the items are cut into shares, in the function of the loop; else what the loop goes through."""
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
    assigns = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and len(n.targets) == 1]
    for _ in range(_MOST_NAMES):
        name = _subject(node)
        values = [a.value for a in assigns if isinstance(a.targets[0], ast.Name) and a.targets[0].id == name]
        if len(values) != 1 or not isinstance(values[0], ast.Subscript | ast.Call | ast.ListComp):
            return
        node = values[0]
        yield node


def _subject(node: ast.AST) -> str:
    """Return the variable that is iterated over: `mine`, `enumerate(mine)`, `tqdm(mine)`, `DataLoader(mine)`."""
    for _ in range(_MOST_NAMES):
        if isinstance(node, ast.Call) and node.args and not isinstance(node.func, ast.Attribute):
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _sizes(parting: Parting) -> str | None:
    """Return the code that says how large consecutive parts are; `None` where no such slice is in sight."""
    found = [n for node in _definitions(parting) for n in ast.walk(node) if isinstance(n, ast.Slice)]
    bounds = [part for n in found if n.step is None for part in (n.lower, n.upper) if part is not None]
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


def _code(loader: Event) -> Iterator[str]:
    """Yield the code of the data sets and samplers behind a loader, and what else of the project it gets."""
    for source in loader.sources:
        yield from (module.text(node) for module, node in source.code)
    for name, value in loader.arguments.items():
        for atom in value.atoms if name in loader.nodes else ():
            if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
                yield atom.cls.module.text(atom.cls.node)
        if name in loader.nodes:
            yield from map(loader.module.text, _behind(loader, loader.nodes[name]))


def _behind(loader: Event, node: ast.expr) -> Iterator[ast.expr]:
    """Yield an argument of a loader, and what its variable is given there."""
    yield node
    function = parted.function_around(loader.module, loader.node) or loader.module.tree
    if isinstance(node, ast.Name):
        for given in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
            if any(isinstance(target, ast.Name) and target.id == node.id for target in given.targets):
                yield given.value
