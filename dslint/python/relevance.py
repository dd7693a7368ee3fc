"""Whether something that concerns other ranks may happen in a function, by the names that it and its callees mention.

No interpretation: the words of the source are compared with the names of the library members whose rows have a tag of
interest. It decides how much effort a call is worth, never what it does.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from dslint.python.importgraph import MOST_STEPS, Names, names_in
from dslint.python.libraries import Libraries
from dslint.python.questions import OPTIONS, Question
from dslint.python.source import Module

if TYPE_CHECKING:
    from dslint.python.focus import Focus

# Tags of what concerns other ranks.
TAGS = frozenset(
    {
        *("collective", "collective-if", "point-to-point", "barrier", "object-collective", "join"),
        *("starts-group", "destroys-group", "makes-group", "backward", "engine-backward", "engine-step"),
        *("optimizer-step", "scheduler-step", "scaler-step", "zero-grad", "clip-grad", "no-sync", "accumulate"),
        *(
            "wraps-model",
            "replicates-model",
            "wraps-optimizer",
            "makes-engine",
            "makes-optimizer",
            "makes-scheduler",
            "makes-loader",
            "makes-evaluator",
        ),
        *(
            "makes-sampler",
            "makes-distributed-sampler",
            "prepares",
            "sets-epoch",
            "shards-data",
            "sets-device",
            "seeds",
        ),
        *("main-first", "local-main-first", "rank-zero-only", "saves", "saves-collective", "gathers-parameters"),
        *("zero-init", "live-config", "trainer", "trainer-train", "trainer-evaluate", "trainer-save", "spawns"),
        *("training-arguments", "parses-arguments", "state-dict-collective", "starts-run", "asks-stage"),
        *("steers-loop", "names-labels", "names-metric"),
    }
)
# Names that mean something else in most places.
_COMMON = frozenset(
    {
        *("apply", "copy", "forward", "generate", "compute", "reduce", "put", "replace", "open", "print", "write"),
        *("wrap", "show", "main", "run", "test", "val", "log", "pipeline", "commit", "send", "__enter__", "device"),
        *("seed", "extract", "move", "join", "touch", "remove", "init", "setup", "gather", "scatter", "shard", "sync"),
        *(
            "config",
            "dump",
            "start",
            "Timer",
            "Split",
            "Create",
            "Optimizer",
            "Module",
            "Sampler",
            "Process",
            "evaluate",
        ),
    }
)
# Words by which programs ask for their place among the ranks.
_RANKS = frozenset(
    {
        *("get_rank", "get_world_size", "local_rank", "world_size", "LOCAL_RANK", "RANK", "WORLD_SIZE", "dist"),
        *("is_main_process", "is_master", "is_rank_zero", "global_rank", "distributed", "deepspeed", "accelerator"),
        *("CUDA_VISIBLE_DEVICES", "is_world_process_zero", "is_global_zero"),
        "sync_dist",
    }
)
_CALL = re.compile(r"([^\W\d]\w*)\s*\(")
_WORD = re.compile(r"[^\W\d]\w*")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@cache
def event_words(rows: Libraries) -> frozenset[str]:
    """Return the names of library members that concern other ranks."""
    found = {path.rpartition(".")[2] for path in rows.tagged(TAGS)}
    own = rows.own.words if rows.own is not None else frozenset()
    return frozenset(name for name in found - _COMMON if not name.startswith("__")) | _RANKS | own


@cache
def waiting_words(rows: Libraries) -> frozenset[str]:
    """Return the names of library functions and methods that every rank must call."""
    found = {path.rpartition(".")[2] for path in rows.tagged(frozenset(("collective", "barrier")))}
    own = rows.own.words if rows.own is not None else frozenset()
    return frozenset(name for name in found - _COMMON if not name.startswith("__")) | own


def _text(node: ast.AST, module: Module) -> tuple[int, str]:
    """Return the first line of a function, and its text; of a module all of it."""
    if isinstance(node, ast.Module):
        return 1, module.source.text
    starts = module.source.line_starts
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
    end = starts[last] if last < len(starts) else len(module.source.text)
    return first, module.source.text[starts[first - 1] if first <= len(starts) else 0 : end]


def _calls(caller: ast.AST, module: Module) -> list[tuple[str, int]]:
    """Return the names that are called in the text of a function, with their lines."""
    found = module.calls.get(caller)
    if found is None:
        line, text = _text(caller, module)
        found, at = module.calls.setdefault(caller, []), 0
        for match in _CALL.finditer(text):
            line += text.count("\n", at, match.start())
            at = match.start()
            found.append((match[1], line))
    return found


def called_names(module: Module) -> frozenset[str]:
    """Return the names of the functions and methods that a module calls anywhere."""
    if module.called is None:
        called = (node.func for node in module.nodes if isinstance(node, ast.Call))
        names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called)
        module.called = frozenset(names)
    return module.called


class Relevance:
    """The functions of the modules that have been read, by name."""

    def __init__(self, rows: Libraries, focus: Focus | None = None) -> None:
        self._focus = focus
        self._events = event_words(rows) if focus is None else focus.question.all_words
        self._waiting = waiting_words(rows)
        self._defined: dict[str, list[tuple[ast.AST, Module]]] = {}
        self._methods: set[int] = set()
        self._known: dict[int, bool] = {}
        self._adding: dict[int, bool] = {}
        self._calls: dict[int, list[int]] = {}

    def add(self, module: Module) -> None:
        """Take the functions and classes of a module into the index, and other names for them."""
        for statement in module.tree.body:
            self._add(statement, module)
        self._known = {key: known for key, known in self._known.items() if known}
        self._adding = {key: known for key, known in self._adding.items() if known}

    def _add(self, node: ast.AST, module: Module) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._defined.setdefault(node.name, []).append((node, module))
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = node.name if inner.name in ("__init__", "__post_init__", "__new__") else inner.name
                    self._defined.setdefault(name, []).append((inner, module))
                    if name == inner.name:
                        self._methods.add(id(inner))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            # Another name for a function.
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._defined.setdefault(target.id, []).append((node, module))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname is not None:
                    self._defined.setdefault(alias.asname, []).append((node, module))
        elif isinstance(node, ast.If | ast.Try):
            for part in ast.iter_child_nodes(node):
                self._add(part, module)

    def words(self, node: ast.AST, module: Module) -> frozenset[str]:
        """Return the names that stand in the source of a function."""
        found = module.words.get(node)
        if found is None:
            found = module.words[node] = frozenset(_WORD.findall(_text(node, module)[1]))
        return found

    def _names(self, node: ast.AST, module: Module) -> Names:
        """Return the names that stand in the code of a function, without those in its strings and comments."""
        found = module.names_in_code.get(node)
        if found is None:
            found = module.names_in_code[node] = names_in(_text(node, module)[1])
        return found

    def of(self, node: ast.AST, module: Module) -> bool:
        """Return whether a function, or one that it may call, mentions something that concerns other ranks."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._search(node, module)
        return found

    def adds_options(self, node: ast.AST, module: Module) -> bool:
        """Return whether a block, or a function that it may call, adds options to a parser by what it names."""
        found = self._adding.get(id(node))
        if found is None:
            found = self._adding[id(node)] = self._search(node, module, OPTIONS)
        return found

    def waits(self, node: ast.AST, module: Module) -> bool:
        """Return whether the source of a function itself names a call that every rank must make."""
        return not self.words(node, module).isdisjoint(self._waiting)

    def later(self, caller: ast.AST, module: Module, node: ast.AST) -> int:
        """Return how many calls that matter come after a place in a function or in the body of a module."""
        found = self._calls.get(id(caller))
        if found is None:
            found = self._calls[id(caller)] = self._lines(caller, module)
        return len(found) - bisect_right(found, getattr(node, "end_lineno", None) or 0)

    def _lines(self, caller: ast.AST, module: Module) -> list[int]:
        """Return the lines of the calls that matter, in order; those of inner functions included."""
        matter: dict[str, bool] = {}
        found = []
        for name, line in _calls(caller, module):
            known = matter.get(name)
            if known is None:
                inner = self._defined.get(name, ())
                known = matter[name] = any(self.of(node, home) for node, home in inner)
            if known:
                found.append(line)
        return found

    def leads(self, words: frozenset[str], module: Module, question: Question, without: Sequence[ast.AST] = ()) -> bool:
        """Return whether names in a module, or the functions that they may mean, mention what is asked about.

        What is `without` is not looked at.
        """
        if not words.isdisjoint(question.words):
            return True
        if self._focus is not None and self._focus.leads(module, words, question):
            return True
        inner = {id(found[0]): found for found in self._meant(words, module, question)}
        return any(
            self._search(*found, question.words, without, question)
            for found in inner.values()
            if all(found[0] is not node for node in without)
        )

    def _meant(
        self, words: frozenset[str], module: Module, question: Question | None
    ) -> Iterator[tuple[ast.AST, Module]]:
        """Yield the functions that names in a module may mean; near an import only those that imports lead to.

        Where a question is asked, a method is meant by `other.run` only, a function of the module itself by `run`, and
        one of another module by `other.run` where that is imported, or by `run` where that name is.
        """
        is_near = question is not None and question.steps < MOST_STEPS
        named = words if self._focus is not None and isinstance(words, Names) else None
        for word in words & self._defined.keys():
            for node, home in self._defined[word]:
                if is_near and home is not module:
                    continue
                if named is None or self._is_meant(word, named, node, home, module):
                    yield node, home

    def _is_meant(self, word: str, names: Names, node: ast.AST, home: Module, module: Module) -> bool:
        if id(node) in self._methods:
            return word in names.members
        if home is module or self._focus is None:
            return word in names.bare
        is_bound = word in names.bare and self._focus.binds(module, word)
        return is_bound or (word in names.members and self._focus.imports(module, home))

    def _search(
        self, node: ast.AST, module: Module, wanted: frozenset[str] | None = None, without: Sequence[ast.AST] = (),
        question: Question | None = None,
    ) -> bool:  # fmt: skip
        """Return whether one of the `wanted` words (of those that concern other ranks) is within reach."""
        seen: set[int] = {id(node), *map(id, without)}
        pending = [(node, module)]
        searched = self._events if wanted is None else wanted
        if question is None and self._focus is not None:
            question = self._focus.question
        while pending:
            top, home = pending.pop()
            words = self.words(top, home) if self._focus is None else self._names(top, home)
            if not words.isdisjoint(searched):
                return True
            known = self._known.get(id(top)) if wanted is None else None
            if known:
                return True
            if self._focus is not None and question is not None and self._focus.leads(home, words, question):
                return True
            for inner in self._meant(words, home, question) if known is None else ():
                if id(inner[0]) not in seen:
                    seen.add(id(inner[0]))
                    pending.append(inner)
        if wanted is None:
            self._known.update(dict.fromkeys(seen, False))
        return False
