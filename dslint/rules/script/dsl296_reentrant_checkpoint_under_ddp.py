"""DDP meets parameters twice, since reentrant checkpointing hides them from it.

**What.** A model of `DistributedDataParallel` recomputes activations with `use_reentrant=True` (what `checkpoint` does
when it is not told), and DDP looks for unused parameters (`find_unused_parameters=True`, in the call or in the
`DistributedDataParallelKwargs` of an Accelerator), or one forward pass runs the
same checkpointed layers more than once, as a model does that encodes queries and passages by one encoder. The same for
a Trainer of transformers with `gradient_checkpointing` and `ddp_find_unused_parameters=True`, which is also its default
for a model of peft.

**Why it hurts.** Reentrant checkpointing runs the layers without a graph, and once more in the backward pass. DDP,
which looks through the graph, takes their parameters for unused and marks them ready at once; when the layers are
recomputed their gradients come anyway. Every rank stops with "Expected to mark a variable ready only once".

**Fix.** `use_reentrant=False`; or `find_unused_parameters=False` where all parameters take part; or
`static_graph=True`.

**When it stays quiet.** A setting that cannot be read decides whether layers are checkpointed; `use_reentrant=False`,
`static_graph=True`, values that cannot be read, FSDP and DeepSpeed; a model of peft in a script that nothing shows to
be written for several processes. Where a setting makes an encoder that runs twice reentrant, that is a finding: no run
with the setting trains.

**Evidence.** Two gloo ranks, torch 2.13: the first backward pass raises on both ranks, with the search and with layers
that run twice; without reentrant checkpointing both train. transformers 5.23 `Trainer._build_ddp_kwargs`: the search is
on unless the model is a `PreTrainedModel`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Loop, Node, children, events, walk
from dslint.python.values import Const, Instance, Unknown
from dslint.python.varies import ASSUMED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.reentrantscripts import (
    ADAPTED,
    ENABLED,
    ENCODER,
    HANDLERS,
    HF,
    MODEL,
    ONCE,
    PEFT,
    PLAIN,
    SEARCH,
    TRAIN,
    TRUE,
)
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import RunQuery, happenings_of
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddppasses import PLUGINS, ddp_passes, times_run
from dslint.rules.wrapping.ddps import dynamic_wrapper

if TYPE_CHECKING:
    from dslint.python.entries import Entry

META = RuleMeta(
    code="DSL296",
    name="reentrant-checkpoint-under-ddp",
    kind="script",
    severity=Severity.WARNING,
    summary="DDP gets gradients of checkpointed layers twice, and the backward pass raises",
    markers=(r"torch|DDP|ddp_find_unused_parameters|backward|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/checkpoint.html",
        "https://github.com/pytorch/pytorch/issues/24005",
        "https://github.com/huggingface/peft/issues/313",
    ),
    depends_on_run=True,
)
# Accelerate hands these to DDP.
_HANDLER = "accelerate.DistributedDataParallelKwargs"
_CHECKPOINT = "torch.utils.checkpoint."


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on reentrant checkpoints in the forward pass of a wrapper that cannot stand them."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for found in (*_under_wrappers(run), *_trainers(run), *_enabled(run)):
        if id(found[0].node) not in seen:
            seen.add(id(found[0].node))
            yield _finding(run, *found)


_Found = tuple[Event, Event, str]


def _under_wrappers(run: RunQuery) -> Iterator[_Found]:
    """`checkpoint(...)` in the forward pass of a wrapped model."""
    for entry, tree in run.trees():
        wraps = {made: event for event in events(tree) if (made := dynamic_wrapper(run, event)) is not None}
        bodies = {id(node.node): node for node in walk(tree) if isinstance(node, Call)} if wraps else {}
        for event in events(tree):
            atom = event.receiver.single if event.receiver is not None and "ddp-forward" in event.tags else None
            body = bodies.get(id(event.node))
            if not isinstance(atom, Instance) or atom not in wraps or body is None:
                continue
            counted = {node for (node, _), times in _executions(body).items() if times > 1}
            for checkpoint in _reentrant(body, entry):
                if _looks(wraps[atom]):
                    yield checkpoint, wraps[atom], "searches for unused ones"
                elif id(checkpoint.node) in counted:
                    yield checkpoint, wraps[atom], "twice"


def _looks(wrap: Event) -> bool:
    value = wrap.arguments.get("find_unused_parameters")
    return value is not None and value.constants == (True,)


def _reentrant(body: Call, entry: Entry) -> Iterator[Event]:
    """Yield the reentrant checkpoints of a forward pass; not those that a setting may leave out, as it mostly does."""
    for found in happenings_of(body.body, entry):
        event = found.event
        if "checkpoints-activations" not in event.tags or any(_is_setting(node) for node in found.around):
            continue
        if event.api.startswith(_CHECKPOINT):
            value = event.arguments.get("use_reentrant")
            if (value is None and not event.open) or (value is not None and value.constants in ((True,), (None,))):
                yield event


def _is_setting(node: Node) -> bool:
    """A test of what nobody knows; `self.training` is true in the steps."""
    if not isinstance(node, Alt) or not node.then_lanes & node.else_lanes or node.test is None:
        return False
    unknown = [atom for atom in node.test.atoms if not isinstance(atom, Const)]
    return any(not (isinstance(atom, Unknown) and "torch.nn.Module" in atom.reason) for atom in unknown)


def _executions(node: Node, path: tuple[str, ...] = ()) -> Counter[tuple[int, tuple[str, ...]]]:
    """Count how often the same layers are checkpointed in one forward pass: of a test the side with more.

    The same are those to which the same expressions lead: `self.encoder(x)` and `self.encoder(y)`.
    """
    if isinstance(node, Event):
        is_checkpoint = "checkpoints-activations" in node.tags
        return Counter({(id(node.node), path): 1}) if is_checkpoint else Counter()
    if isinstance(node, Alt):
        return _executions(node.then, path) | _executions(node.orelse, path)
    if isinstance(node, Loop):
        return _executions(node.body, path)
    if isinstance(node, Call):
        path = (*path, ast.dump(node.node.func) if isinstance(node.node, ast.Call) else "")
    found: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for child in children(node):
        found += _executions(child, path)
    return found


def _trainers(run: RunQuery) -> Iterator[_Found]:
    """Arguments of a Trainer that ask for both; for a model of peft the search is the default."""
    adapted = _adapted(run) if intends_several(run) else set()
    for found in run.happenings("training-arguments"):
        event = found.event
        looks = _is_true(event, "ddp_find_unused_parameters")
        looks |= "ddp_find_unused_parameters" not in event.arguments and not adapted.isdisjoint(instances(event.result))
        wants = looks and _is_true(event, "gradient_checkpointing") and not event.open
        if wants and _says_reentrant(event) and not {"deepspeed", "fsdp"} & set(event.arguments):
            yield event, event, "searches for unused ones"


def _adapted(run: RunQuery) -> set[Instance]:
    """Return the arguments of Trainers whose model certainly is one of peft."""
    found: set[Instance] = set()
    for made in run.happenings("trainer"):
        model = made.event.arguments.get("model")
        kinds = [atom.cls if isinstance(atom, Instance) else None for atom in model.atoms] if model is not None else []
        if kinds and all(isinstance(kind, str) and kind.startswith("peft.") for kind in kinds):
            found |= set(instances(made.event.arguments.get("args")))
    return found


def _enabled(run: RunQuery) -> Iterator[_Found]:
    """`model.gradient_checkpointing_enable({"use_reentrant": True})` before a wrapper that looks, or runs it twice."""
    for _, tree in run.trees():
        enabled = [event for event in events(tree) if _enables(event)]
        wraps = [event for event in events(tree) if dynamic_wrapper(run, event) is not None and _looks(event)]
        wraps += [event for event in events(tree) if "prepares" in event.tags and _is_told_to_look(run, event)]
        wraps += [event for event in events(tree) if "trainer" in event.tags and _trainer_looks(run, event)]
        for event in enabled:
            taken = event.receiver.atoms if event.receiver is not None else frozenset()
            wrap = next((wrap for wrap in wraps if taken & wrap.modules), None)
            if wrap is not None:
                yield event, wrap, "searches for unused ones"
        for wrap, body in ddp_passes(run, tree) if enabled else ():
            yield from ((event, wrap, "twice") for event in enabled if times_run(body, event.receiver) > 1)


def _enables(event: Event) -> bool:
    return "checkpoints-activations" in event.tags and event.receiver is not None and _says_reentrant(event)


def _is_told_to_look(run: RunQuery, event: Event) -> bool:
    """Return whether the Accelerator of a `prepare` has handlers that let DDP look for unused parameters."""
    makers = [run.makers.get(atom) for atom in instances(event.receiver)]
    if len(makers) != 1 or makers[0] is None or any(name in makers[0].arguments for name in PLUGINS):
        return False
    for value in makers[0].items.get("kwargs_handlers", ()):
        made = next((run.makers[atom] for atom in instances(value) if atom in run.makers), None)
        if made is not None and made.api == _HANDLER and not made.open and _looks(made):
            static = made.arguments.get("static_graph")
            return static is None or static.constants == (False,)
    return False


def _trainer_looks(run: RunQuery, trainer: Event) -> bool:
    """Return whether the arguments of a Trainer let DDP look for unused parameters."""
    made = [run.makers.get(atom) for atom in instances(trainer.arguments.get("args"))]
    event = made[0] if len(made) == 1 else None
    is_read = event is not None and not event.open and not {"deepspeed", "fsdp"} & set(event.arguments)
    return event is not None and is_read and _is_true(event, "ddp_find_unused_parameters")


def _is_true(event: Event, name: str) -> bool:
    return name in event.arguments and event.arguments[name].constants == (True,)


def _says_reentrant(event: Event) -> bool:
    """Return whether the options of the checkpoints certainly ask for reentrant ones."""
    names = (f"{word}_checkpointing_kwargs.use_reentrant" for word in ("gradient", "activation"))
    return any(value.constants == (True,) for name in names for value in event.items.get(name, ()))


def _finding(run: RunQuery, event: Event, wrap: Event, why: str) -> Finding:
    if why == "twice":
        what = "These layers are checkpointed more than once in one DDP forward"
    else:
        what = f"Reentrant checkpointing hides these layers from DDP, which {why}"
    is_said = "use_reentrant" in event.arguments or event is wrap or event.receiver is not None
    return run.finding(
        META,
        event.module,
        event.nodes.get("ddp_find_unused_parameters", event.node) if event is wrap else event.node,
        f"{what}: gradients come twice, and backward raises",
        hint="Pass `use_reentrant=False`",
        related=() if event is wrap else (run.location(wrap.module, wrap.node, "wrapped here"),),
        varies=0 if is_said else ASSUMED,
        facts={"why": "twice" if why == "twice" else "search"},
    )


EXAMPLES = (
    bad("told to the model, before a Trainer that looks", {"train.py": ENABLED % True}, "train.py:7"),
    good("a Trainer that does not look", {"train.py": ENABLED % False}),
    bad("queries and passages", {"train.py": ENCODER % (True, "self.embed(passage)")}, at="train.py:10 warning"),
    good("queries and passages, not reentrant", {"train.py": ENCODER % (False, "self.embed(passage)")}),
    good("queries alone", {"train.py": ENCODER % (True, "passage")}),
    bad("a Trainer of a model of peft", {"train.py": ADAPTED % ("", PEFT)}, at="train.py:6 warning"),
    good("told not to look", {"train.py": ADAPTED % ("\n        ddp_find_unused_parameters=False,", PEFT)}),
    good("no model of peft", {"train.py": ADAPTED % ("", 'AutoModelForCausalLM.from_pretrained("gpt2")')}),
    good(
        "peft, in a script for one process",
        {"train.py": (ADAPTED % ("", PEFT)).replace("with args.main_process_first()", "if dataset")},
    ),
    bad("told by an Accelerator", {"train.py": HANDLERS % True}, at="train.py:9 warning"),
    good("the Accelerator does not look", {"train.py": HANDLERS % False}),
    bad("the search", {"train.py": TRAIN % SEARCH, "model.py": MODEL % ("", TRUE, ONCE)}, at="model.py:13 warning"),
    bad("the default", {"train.py": TRAIN % SEARCH, "model.py": MODEL % ("", "", ONCE)}, at="model.py:13 warning"),
    bad(
        "one encoder for both inputs",
        {"train.py": TRAIN % "", "model.py": MODEL % ("", TRUE, "self.encode(x) - self.encode(y)")},
        at="model.py:13 warning",
    ),
    bad("a Trainer", {"train.py": HF % "True"}, at="train.py:12 warning"),
    bad("a model of transformers", {"train.py": PLAIN % "True"}, at="train.py:9 warning"),
    good("not reentrant", {"train.py": TRAIN % SEARCH, "model.py": MODEL % ("", ", use_reentrant=False", ONCE)}),
    good(
        "a setting",
        {
            "train.py": TRAIN % SEARCH,
            "model.py": (MODEL % (" and self.saves", TRUE, ONCE)).replace(
                "        super().__init__()\n", "        super().__init__()\n        self.saves = load_config().saves\n"
            ),
        },
    ),
    good("no search", {"train.py": TRAIN % "", "model.py": MODEL % ("", TRUE, ONCE)}),
    good(
        "a static graph",
        {"train.py": TRAIN % f"{SEARCH}, static_graph=True", "model.py": MODEL % ("", TRUE, ONCE)},
    ),
    good("a Trainer without", {"train.py": HF % "False"}),
    good("a model of transformers without", {"train.py": PLAIN % "False"}),
)
