"""Splits of a data set whose seed nobody sets by default: `default_rng(args.seed)` where `--seed` is `None`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.source import Location
from dslint.python.events import Alt, Event
from dslint.python.queries.order import following
from dslint.python.source import Module
from dslint.python.values import Value
from dslint.python.varies import HOST
from dslint.rules.data.ownorders import SEEDS, entry_modules
from dslint.rules.names.settingfiles import sections_with
from dslint.rules.names.settings import holds_settings
from dslint.rules.ranks.intent import says_several
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import draws_once, has_several, trainers
from dslint.rules.training.plateaus import instances

_SEED_NAMES = ("random_state", "seed", "generator")
_SPLITS = ("random_split", "train_test_split")
_TRAINS = ("wraps-model", "makes-engine", "prepares", "trainer-train")
_TELLS = re.compile(r"broadcast|scatter|all_gather_object")
_MOST_NAMES = 30


def unset_seeds(run: RunQuery) -> Iterator[tuple[Event, list[Location]]]:
    """Yield the draws that split a data set with a seed that is `None` by default, with the places that say so."""
    if not _several(run) or run.has("spawns") or draws_once(run):
        return
    for found in run.happenings("shuffles"):
        event = found.event
        if event.open or event.may or event.lanes != run.machine.worlds.full or not _splits(event):
            continue
        if _is_kept(found) or _is_told(found):
            continue
        reasons = _no_seed(run, event)
        if reasons:
            yield event, reasons


def _several(run: RunQuery) -> bool:
    """Return whether several processes train together, each of which runs the script."""
    made = trainers(run)
    if run.context.is_one_process or not run.has(*_TRAINS):
        return False
    return all(map(has_several, made)) if made else says_several(run, entry_modules(run))


def _splits(event: Event) -> bool:
    """Return whether a draw divides items into parts: its order is cut in two in the function around it."""
    if event.api.rpartition(".")[2] in _SPLITS:
        return True
    if not isinstance(event.node, ast.Call):
        return False
    scope = function_around(event.module, event.node) or event.module.tree
    names = _names_of_order(event.module, event.node)
    cuts = [
        node.slice
        for node in ast.walk(scope)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and ast.unparse(node.value) in names
    ]
    ends = {ast.unparse(cut.upper) for cut in cuts if cut.upper is not None and cut.lower is None}
    return any(cut.lower is not None and ast.unparse(cut.lower) in ends for cut in cuts)


def _names_of_order(module: Module, call: ast.Call) -> set[str]:
    """Return the variables that hold a drawn order: what a shuffle puts in order, or what is assigned."""
    at: ast.AST | None = module.parents.get(call)
    while at is not None and not isinstance(at, ast.stmt):
        at = module.parents.get(at)
    if isinstance(at, ast.Assign):
        return {ast.unparse(target) for target in at.targets}
    is_shuffle = isinstance(call.func, ast.Attribute) and call.func.attr == "shuffle" and isinstance(at, ast.Expr)
    return {ast.unparse(call.args[0])} if is_shuffle and call.args else set()


def _is_kept(found: Happening) -> bool:
    """Return whether a split is made once and read afterwards: under a test of a file, or in `prepare_data`."""
    if any(isinstance(node, Alt) and node.varies & HOST for node in found.around):
        return True
    return any(getattr(getattr(c.function, "node", None), "name", "") == "prepare_data" for c in found.calls)


def _is_told(found: Happening) -> bool:
    """Return whether one rank may tell the others afterwards what it has drawn."""
    return any(_TELLS.search(event.api) for event in following(found.entry.tree, found.event, again=False))


def _no_seed(run: RunQuery, event: Event) -> list[Location]:
    """Return the places that say that the seed of a draw is `None` by default; nothing where one may be set."""
    for name in _SEED_NAMES:
        if name in event.arguments and event.arguments[name].constants != (None,):
            return _unset(run, event, name)
    made = [atom for atom in instances(event.receiver) if isinstance(atom.node, ast.Call)]
    if made:
        found = [_of_generator(run, atom.node) for atom in made if isinstance(atom.node, ast.Call)]
        return [place for places in found for place in places] if all(found) else []
    return _seeded_where_set(run, event) if event.receiver is None else []


def _of_generator(run: RunQuery, call: ast.Call) -> list[Location]:
    """Return why the seed is `None` of which a generator is made: `default_rng(seed)`, `random.Random(seed)`."""
    home = run.machine.program.home_of(call)
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("seed", "x")), None)
    is_maker = ast.unparse(call.func).rpartition(".")[2] in ("default_rng", "RandomState", "Random")
    return _by_code(run, home, given) if home is not None and given is not None and is_maker else []


def _seeded_where_set(run: RunQuery, draw: Event) -> list[Location]:
    """Return why nothing seeds the generator of the process by default: `if args.seed is not None: seed(args.seed)`."""
    places: list[Location] = []
    told: set[tuple[str, int]] = set()
    for found in run.happenings("seeds"):
        event, name = found.event, next((n for n in ("seed", "a") if n in found.event.arguments), "")
        tests = [node for node in found.around if isinstance(node, Alt)]
        unset = _unset(run, event, name) if name and tests else []
        if not unset:
            return []
        places += unset
        told.add((event.module.path, getattr(event.node, "lineno", 0)))
        told |= {(call.module.path, getattr(call.node, "lineno", 0)) for call in found.calls}
    for module in dict.fromkeys([draw.module, *entry_modules(run)]):
        text = module.source.text
        lines = (text.count("\n", 0, match.start()) + 1 for match in SEEDS.finditer(text))
        if any((module.path, line) not in told for line in lines):
            return []
    return places[:2]


def _unset(run: RunQuery, event: Event, name: str) -> list[Location]:
    """Return why an argument of a call is `None` by default: an option or a setting without a value."""
    value, node = event.arguments[name], event.nodes.get(name)
    if _is_none(run, value):
        return [run.location(event.module, node if node is not None else event.node, "`None` where nobody sets it")]
    return _by_code(run, event.module, node) if node is not None else []


def _by_code(run: RunQuery, module: Module, node: ast.expr) -> list[Location]:
    """Return why an expression is `None` by default, by the options and settings that it stands for."""
    places = [_empty_setting(run, _key(leaf)) for leaf in _leaves(run, module, node) or ()]
    return [place for place in places if place is not None] if places and all(places) else []


def _is_none(run: RunQuery, value: Value) -> bool:
    return value.constants is None and run.likely(value) == (None,)


def _leaves(run: RunQuery, module: Module, node: ast.expr) -> list[ast.expr] | None:
    """Return the settings that a name stands for, through variables and parameters; `None` for anything else."""
    pending: list[tuple[Module, ast.AST]] = [(module, node)]
    found: list[ast.expr] = []
    seen: set[ast.AST] = set()
    while pending:
        home, at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        is_field = isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name) and at.value.id == "self"
        if isinstance(at, ast.Name) or is_field:
            given = list(run.derived.behind(home, at))
            if not given or len(seen) > _MOST_NAMES:
                return None
            pending += given
        elif isinstance(at, ast.Subscript | ast.Attribute | ast.Call) and _key(at):
            found.append(at)
        else:
            return None
    return found


def _key(node: ast.expr) -> str:
    """Return which setting is read: `cfg["seed"]`, `cfg.train.seed`, `cfg.get("seed")`."""
    if isinstance(node, ast.Attribute):
        is_parsed = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("parse_args")
        return node.attr if is_parsed or holds_settings(node.value) else ""
    if isinstance(node, ast.Subscript):
        return str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
    func = node.func if isinstance(node, ast.Call) else None
    is_get = isinstance(func, ast.Attribute) and func.attr == "get" and isinstance(node, ast.Call)
    words = [a.value for a in getattr(node, "args", ()) if isinstance(a, ast.Constant)]
    return str(words[0]) if is_get and words and words[1:] in ([], [None]) else ""


def _empty_setting(run: RunQuery, key: str) -> Location | None:
    """Return where an option, a field or a YAML file leaves a seed empty, where none of them has a number."""
    if "seed" not in key.lower() and not key.endswith("state"):
        return None
    if run.machine.launch is not None and key in run.machine.launch.given:
        return None
    found = [
        (module, node, value) for module in run.machine.program.modules() for node, value in _defaults(module, key)
    ]
    if any(not _is_empty(value) for _, _, value in found):
        return None
    sections = list(sections_with(run, key, key))
    if any(section.data[key] is not None for section in sections):
        return None
    if sections:
        return sections[0].place(key, "no seed here")
    return run.location(found[0][0], found[0][1], "no seed by default") if found else None


def _is_empty(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _defaults(module: Module, key: str) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """Yield the options and the fields of dataclasses of a name, and their defaults."""
    for node in module.nodes_of(ast.Call):
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        is_option = isinstance(node.func, ast.Attribute) and node.func.attr in ("add_argument", "option")
        if is_option and key in {word.lstrip("-").replace("-", "_") for word in words}:
            yield node, next((k.value for k in node.keywords if k.arg == "default"), None)
    for field in module.nodes_of(ast.AnnAssign):
        if isinstance(field.target, ast.Name) and field.target.id == key:
            yield field, field.value
    for given in module.nodes_of(ast.Assign):
        is_same = isinstance(given.value, ast.Name | ast.Attribute)  # under another name
        if not is_same and any(isinstance(t, ast.Attribute) and t.attr == key for t in given.targets):
            yield given, given.value
