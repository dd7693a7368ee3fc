"""Which events wait for other ranks, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.python.attributes import is_instance_of
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Const, Instance, Value

# Every rank of the job must come to these, whatever the configuration.
_ALWAYS = frozenset(
    {"collective", "barrier", "saves-collective", "object-collective", "state-dict-collective", "main-first"}
)
# These gather parameters where they are partitioned.
_GATHERS = frozenset({"engine-forward", "generate", "gathers-parameters"})
# The same of a model that an engine has taken.
_RUNS = frozenset({"forward", "generate", "chat"})
_FORWARDS = frozenset({"forward", "inside-forward", "may-gather"})
# What must be so that a call waits for all ranks.
ZERO3, DEEPSPEED, FSDP = "ZeRO stage 3", "DeepSpeed", "FSDP"
# Gradients are reduced here, unless the script says otherwise.
_BACKWARD = frozenset({"backward", "engine-backward"})


@dataclass(frozen=True, slots=True)
class Wait:
    """What an event waits for: `kind` tells calls apart that cannot meet; `needs` is a condition on the run.

    `key` tells apart what can meet and still goes wrong: another root, another tensor.
    """

    kind: str
    needs: str = ""
    key: object = None


class Waits:
    """Answers which events wait, with what is known of the run.

    `zero3`: ZeRO stage 3 is in use, so that forward passes gather parameters; `None` when nobody knows. `is_fsdp`: the
    Accelerator of the run shards with FSDP, so that the state of the model is gathered. `taken` are the models that
    engines have taken or may have taken; where it is given, stage 3 is supposed for them.
    """

    def __init__(
        self, m: Machine, zero3: bool | None = None, *, is_fsdp: bool = False, taken: frozenset[Instance] | None = None
    ) -> None:
        self.m = m
        self.zero3 = zero3
        self.is_fsdp = is_fsdp
        self.taken = taken
        self._known: dict[int, Wait | None] = {}

    def of(self, event: Event, *, is_local: bool = False) -> Wait | None:
        """Return what an event waits for; `is_local` inside of `no_sync`."""
        key = id(event) * 2 + is_local
        if key not in self._known:
            self._known[key] = self._of(event, is_local)
        return self._known[key]

    def _of(self, event: Event, is_local: bool) -> Wait | None:
        tags = event.tags
        if "point-to-point" in tags or "destroys-group" in tags:
            return None
        if ("rank-zero-only" in tags and "barrier" not in tags) or has_word(event, "alone-if"):
            return None
        if tags & _BACKWARD:
            return None if is_local else self._backward(event)
        if "waits-if-sharded" in tags or "waits-if-engine" in tags:
            return self._of_parts(event)
        if "makes-group" in tags:
            only_members = event.arguments.get("use_local_synchronization")
            is_local = only_members is not None and only_members.constants != (False,)
            return None if is_local or event.open else Wait(kind(event))
        if tags & _ALWAYS:
            return Wait(kind(event)) if self._is_whole_job(event) else None
        if has_word(event, "collective-if") or "engine-step" in tags:
            return Wait(kind(event))
        if "fsdp-forward" in tags:
            return Wait("forward of FSDP")
        is_forward = bool(tags & _FORWARDS) and self.taken is not None and kind(event) in _RUNS
        if (tags & _GATHERS and self.zero3) or ((tags & _GATHERS or is_forward) and self._is_taken(event)):
            return Wait(kind(event), ZERO3)
        return None

    def _of_parts(self, event: Event) -> Wait | None:
        """Return what a call waits for that talks to other ranks only where an engine or FSDP has the model."""
        is_supposed = self.taken is not None
        if "waits-if-engine" in event.tags:
            # It saves the checkpoint of an engine, which begins with a barrier at every stage; else each rank saves.
            return Wait(kind(event), DEEPSPEED) if self.zero3 is not None or is_supposed else None
        if self.is_fsdp and _is_prepared(event):
            return Wait(kind(event), FSDP)
        is_waiting = (self.zero3 or is_supposed) and self._is_whole_job(event) and not self._is_own_copy(event)
        return Wait(kind(event), ZERO3) if is_waiting else None

    def _is_taken(self, event: Event) -> bool:
        """Return whether a model runs that an engine has taken, where stage 3 is supposed."""
        if self.taken is None:
            return False
        if "gathers-parameters" in event.tags:
            return True
        atoms = event.receiver.atoms if event.receiver is not None else frozenset()
        kinds = ("engine", "accelerate.PreparedModel", "accelerate.Prepared")
        return bool(atoms) and all(
            isinstance(a, Instance)
            and (a in self.taken or (isinstance(a.cls, str) and is_instance_of(self.m, a.cls, *kinds)))
            for a in atoms
        )

    def _is_own_copy(self, event: Event) -> bool:
        """Return whether the model of a call of accelerate is one that nobody has prepared: each rank has all of it."""
        model = event.arguments.get("model")
        if model is None or not event.api.startswith("accelerate."):
            return False
        return bool(model.atoms) and all(isinstance(a, Instance) and self._is_never_prepared(a) for a in model.atoms)

    def _is_never_prepared(self, model: Instance) -> bool:
        is_known = bool(model.cls) or model in self.m.copies
        return is_known and model.cls != "accelerate.Prepared" and not self._is_reduced(model)

    def _backward(self, event: Event) -> Wait | None:
        if "engine-backward" in event.tags:
            return Wait("backward")
        for made_by in (event.snapshot.get("self", (0, 0, frozenset()))[2],):
            if any(self._is_reduced(wrapper) for wrapper in made_by):
                return Wait("backward")
        return None

    def _is_reduced(self, wrapper: Instance) -> bool:
        return isinstance(wrapper.cls, str) and is_instance_of(
            self.m, wrapper.cls, "ddp", "fsdp", "engine", "accelerate.PreparedModel"
        )

    def _is_whole_job(self, event: Event) -> bool:
        """Return whether the group is the whole job: no group is given, or `None`."""
        row = self.m.libraries.function(event.api)
        name = str(row.extra.get("group", "")) if row is not None else ""
        group = event.arguments.get(name) or event.arguments.get("group") or event.arguments.get("process_group")
        if group is None or group.constants == (None,):
            return group is not None or not (event.open and name)
        atom = group.single
        return isinstance(atom, Const) and atom.value is None

    def roots(self, one: Event | None, other: Event | None) -> bool:
        """Return whether two calls name roots that are certainly different numbers."""
        found = [self.root(event) for event in (one, other)]
        values = [v.constants for v in found if v is not None]
        return len(values) == 2 and None not in values and values[0] != values[1]

    def root(self, event: Event | None) -> Value | None:
        """Return the root that a call names."""
        if event is None:
            return None
        name = self.root_name(event)
        return event.arguments.get(name) if name else None

    def root_name(self, event: Event) -> str:
        """Return the parameter that names the root; empty where there is none."""
        row = self.m.libraries.function(event.api)
        return str(row.extra.get("root", "")) if row is not None else ""

    def text(self, event: Event | None) -> str:
        """Return the code of a call, with its name as the library has it."""
        return f"{event.api} {event.module.text(event.node)}" if event is not None else ""


def has_word(event: Event, word: str) -> bool:
    """Return whether a tag `WORD NAME=VALUE` of a call holds: the argument, or its field, certainly has that value."""
    for tag in event.tags:
        if tag.startswith(f"{word} "):
            name, _, wanted = tag.removeprefix(f"{word} ").partition("=")
            value = event.arguments.get(name) if "." not in name else next(iter(event.items.get(name, ())), None)
            if value is not None and value.constants is not None and str(value.constants[0]) == wanted:
                return True
    return False


def _is_prepared(event: Event) -> bool:
    """Return whether the model that a call gets is certainly one that accelerate has prepared."""
    model = event.arguments.get("model")
    atoms = model.atoms if model is not None else frozenset()
    return bool(atoms) and all(isinstance(a, Instance) and a.cls == "accelerate.PreparedModel" for a in atoms)


def kind(event: Event) -> str:
    """Return the word that two calls share when the ranks that make them can meet."""
    name = event.api.rpartition(".")[2]
    return _SAME.get(name, name)


_SAME = {
    "wait_for_everyone": "barrier",
    "monitored_barrier": "barrier",
    "all_reduce_coalesced": "all_reduce",
    "_all_gather_base": "all_gather_into_tensor",
}
