"""What a call adds to the trace of a side: a collective, what a function of the project does, or perhaps something."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective
from dslint.model.script.parameters import Bound, bound
from dslint.model.script.ranks.guards import GROUP_MAKERS
from dslint.model.script.traces.called import Given, is_told_alone, retold
from dslint.model.script.traces.elements import Element, Maybe, Op, Scope, filled, leaves_early, operations
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.questions import asks, may_end

if TYPE_CHECKING:
    from dslint.model.script.traces.record import Recorder

_MAX_DEPTH = 6
# A call that may well be the counterpart of a collective, although its code is not in this file.
_MAYBE_COLLECTIVE = re.compile(
    r"barrier|sync|wait|recv|receive|broadcast|bcast|gather|reduce|scatter|all_to_all|save_ch"
)


class CallTraces:
    """Answers for one recorder."""

    def __init__(
        self,
        recorder: Recorder,
        ground: Ground,
        collective: Callable[[cst.Call], Collective | None],
        elsewhere: Callable[[cst.Call], tuple[Foreign, Recorder] | None],
    ) -> None:
        self._recorder = recorder
        self._tree = ground.tree
        self._names = ground.names
        self._helper_of = ground.helper
        self._shared_tests = ground.shared_tests
        self._collective = collective
        self._elsewhere = elsewhere
        self._depth = 0

    def of(self, call: cst.Call) -> list[Element]:
        """What runs by a call; nothing for a call of which nobody thinks that it waits."""
        direct = self._collective(call)
        if direct is not None:
            return [Op(direct, call)]
        helper = self._helper_of(call)
        if helper is not None:
            return self._run(call, helper, self._recorder)
        found = self._elsewhere(call)
        told = self._run(call, found[0].function, found[1], found[0]) if found is not None else []
        return told or self._perhaps(call)

    def _perhaps(self, call: cst.Call) -> list[Element]:
        name = self._names.called(call)
        # Ranks that have left are no part of a group that the others make afterwards.
        if name in GROUP_MAKERS:
            return [Maybe(call)]
        if not self._recorder.is_split:
            return []
        if self._calls_back(call):
            return [Maybe(call)]
        if _MAYBE_COLLECTIVE.search(name) is None:
            return []
        # A known function on a subgroup is no counterpart.
        known = (self._names.qualified(call.func) or "").startswith(("torch.", "deepspeed."))
        return [] if known else [Maybe(call)]

    def _calls_back(self, call: cst.Call) -> bool:
        """A function of the file that runs collectives is handed over: it is called as often as nobody knows."""
        for arg in call.args:
            handed = self._names.function_named(arg.value)
            if handed is not None and operations(self._recorder.called(handed, self._recorder)):
                return True
        return False

    def _run(
        self, call: cst.Call, helper: cst.FunctionDef, recorder: Recorder, foreign: Foreign | None = None
    ) -> list[Element]:
        """What a function of the project does, told of the call that runs it; ``recorder`` is that of its file."""
        if self._depth >= _MAX_DEPTH:
            return []
        self._depth += 1
        body = self._recorder.apart(helper, recorder)
        self._depth -= 1
        if not operations(body) and not may_end(body):
            return []
        passed = bound(recorder.tree, call, helper)
        if not recorder.is_alike(helper) and is_told_alone(call, passed):
            return [Maybe(call)]  # its tests ask for the rank that it is told, and not for that of the process
        if not self._manages(call):
            body = filled(body, ())
        is_asking = any(map(asks, body))
        given = self._given(passed, recorder) if is_asking else {}
        shared = self._shared_tests(call, helper) if is_asking and foreign is None else frozenset()
        told = retold(body, call, helper, given, foreign, shared)
        return [Scope(told)] if leaves_early(told) else list(told)

    def _given(self, passed: Bound, recorder: Recorder) -> dict[str, Given]:
        """What a call passes for each parameter, or the default, which stands in the file of the function."""
        told = {name: _known(value, recorder) for name, value in passed.defaults.items()}
        return told | {name: _known(value, self._recorder) for name, value in passed.passed.items()}

    def _manages(self, call: cst.Call) -> bool:
        """The call makes the context manager of a ``with``."""
        return isinstance(self._tree.parent(call), cst.WithItem)


def _known(value: cst.BaseExpression, recorder: Recorder) -> Given:
    """What is known of an argument, or of a default, of the file of a recorder."""
    if type(value) is cst.Name and value.value in ("True", "False", "None"):
        return Given(value.value == "True", recorder.tree.text(value))
    return Given(recorder.side.decide(value), recorder.text(value))
