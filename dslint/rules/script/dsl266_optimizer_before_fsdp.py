"""An optimizer is made of the parameters that FSDP replaces afterwards.

**What.** `optimizer = AdamW(model.parameters())`, and later `model = FSDP(model)` without `use_orig_params=True`, or
`fully_shard(model)`.

**Why it hurts.** FSDP puts flat parameters in the place of those of the model, `fully_shard` distributed tensors. The
optimizer keeps the old ones: no forward reads them and none gets a gradient, so that each `step()` changes nothing.
Nothing raises; the loss stays what it was, on one process as on many.

**Fix.** Make the optimizer from the model that FSDP has taken. The fix changes the two places where the statements
follow each other and the optimizer takes all parameters. Groups by the names of parameters also need
`use_orig_params=True`.

**When it stays quiet.** `use_orig_params=True`, with which the same parameters stay, or a value that the file does not
tell; `ignored_modules` and its like; an optimizer that is made again after the model was wrapped, whose groups are
written anew, or that something prepares; another model; parameters whose model cannot be followed.

**Evidence.** Two gloo ranks, torch 2.13, six parameters, AdamW and SGD: after five steps none has changed and the loss
is the same, with `FULL_SHARD`, `SHARD_GRAD_OP`, `NO_SHARD` and `fully_shard`, whole or in units; with the optimizer
made afterwards, or with `use_orig_params=True`, the loss falls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import arms_of, models_given, parameter_owners
from dslint.rules.zero.enginenames import function_of, target_of

META = RuleMeta(
    code="DSL266",
    name="optimizer-before-fsdp",
    kind="script",
    severity=Severity.ERROR,
    summary="an optimizer is made of parameters that FSDP replaces afterwards: its steps change nothing",
    fix="safe",
    markers=(r"parameters\(", r"FullyShardedDataParallel|fully_shard"),
    versions=("torch>=1.12",),
    references=("https://docs.pytorch.org/docs/stable/fsdp.html", "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"),
    depends_on_run=True,
)  # fmt: skip

_IGNORED = ("ignored_modules", "ignored_parameters", "ignored_states", "ignored_params")
_GIVES = ("parameters", "named_parameters")
_REWRITTEN = re.compile(r"param_groups[^\n]*\[\s*['\"]params['\"]\s*\]|add_param_group")


@dataclass(frozen=True, slots=True)
class _Made:
    """An optimizer, and the models whose parameters it got."""

    found: Happening
    atom: Instance
    owners: frozenset[Instance]


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each optimizer that is made of a model before that is sharded, and that steps."""
    if not any(_replaces(run, found.event) for found in run.happenings("wraps-model")):
        return
    asked = parameter_owners(run)
    stepped = {atom for found in run.occurrences("optimizer-step") for atom in instances(found.event.receiver)}
    taken = {
        a for f in run.occurrences("prepares", "makes-engine") for v in f.event.arguments.values() for a in instances(v)
    }
    seen: set[int] = set()
    for entry, tree in run.trees():
        made: list[_Made] = []
        for found in happenings_of(tree, entry):
            event = found.event
            atom = event.result.single if event.result is not None and "makes-optimizer" in event.tags else None
            if isinstance(atom, Instance):
                made.append(_Made(found, atom, frozenset(models_given(event, asked))))
            elif _replaces(run, event):
                models = frozenset(instances(event.arguments.get("module")))
                for one in made:
                    is_used = one.atom in stepped or _is_returned(one.found.event)
                    is_same = bool(one.owners & models) or _is_same_by_name(one.found.event, event)
                    if not is_same or one.atom in taken or not is_used or id(one.found.event.node) in seen:
                        continue
                    if not _excludes(one.found, found) and not one.found.event.module.search(_REWRITTEN):
                        seen.add(id(one.found.event.node))
                        yield _finding(run, one.found, found)


def _replaces(run: RunQuery, event: Event) -> bool:
    """A call after which the model has other parameters, as far as it tells."""
    if "wraps-model" not in event.tags or event.open or event.may:
        return False
    if any(name in event.arguments and event.arguments[name].constants != (None,) for name in _IGNORED):
        return False
    keeps = event.arguments.get("use_orig_params")
    is_wrapper = run.machine.libraries.is_class(event.api, "fsdp")
    return (is_wrapper or _is_in_place(run, event)) and (keeps is None or keeps.constants == (False,))


def _is_in_place(run: RunQuery, event: Event) -> bool:
    row = run.machine.libraries.function(event.api)
    return row is not None and "becomes" in row.extra


def _is_same_by_name(made: Event, wrap: Event) -> bool:
    """The parameters are those of a variable that the same function shards later, with nothing assigned in between.

    For models of which nobody knows the class: `model.to(device)` gives another object.
    """
    scope, params, model = function_of(made.module, made.node), made.nodes.get("params"), wrap.nodes.get("module")
    if params is None or not isinstance(model, ast.Name | ast.Attribute) or made.module is not wrap.module:
        return False
    if function_of(wrap.module, wrap.node) is not scope:
        return False
    text = ast.unparse(model)
    calls = (node.func for node in ast.walk(params) if isinstance(node, ast.Call))
    if not any(isinstance(f, ast.Attribute) and f.attr in _GIVES and ast.unparse(f.value) == text for f in calls):
        return False
    between = range(made.node.lineno + 1, wrap.node.lineno)  # type: ignore[attr-defined]
    given = (node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.AnnAssign))
    assigned = (target for node in given for target in (getattr(node, "targets", None) or [node.target]))  # type: ignore[union-attr]
    return made.node.lineno <= wrap.node.lineno and not any(  # type: ignore[attr-defined]
        target.lineno in between and ast.unparse(target) == text for target in assigned
    )


def _excludes(one: Happening, other: Happening) -> bool:
    """Return whether the two stand on different sides of a test."""
    mine, theirs = ({id(arm.alt): arm.holds for arm in arms_of(found)} for found in (one, other))
    return any(mine[alt] != theirs[alt] for alt in mine.keys() & theirs.keys())


def _is_returned(event: Event) -> bool:
    """Return whether the function hands the optimizer on."""
    scope = function_of(event.module, event.node)
    target = target_of(event, scope)
    names = {target.id} if isinstance(target, ast.Name) else set()
    returns = (node.value for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None)
    parts = (part for value in returns for part in ((value, *value.elts) if isinstance(value, ast.Tuple) else (value,)))
    return any(isinstance(part, ast.Name) and part.id in names for part in parts)


def _finding(run: RunQuery, made: Happening, wrapped: Happening) -> Finding:
    wrap, event = wrapped.event, made.event
    around = {id(node) for node in wrapped.around}
    via = next((call for call in made.calls if id(call) not in around), None)
    module, node = (via.module, via.node) if via is not None else (event.module, event.node)
    in_place = _is_in_place(run, wrap)
    model = wrap.nodes.get("module") or wrap.node
    does = "`fully_shard`" if in_place else "FSDP"
    related = [run.location(wrap.module, wrap.node, "sharded here")]
    if via is not None:
        related.append(run.location(event.module, event.node, "made here"))
    return run.finding(
        META,
        module,
        node,
        f"the optimizer holds parameters that {does} replaces in `{run.text(wrap.module, model)}`: its steps change "
        "nothing",
        hint="Make the optimizer after the model is sharded" + ("" if in_place else ", from the wrapper"),
        related=tuple(related),
        fix=_fix(run, event, wrap, in_place) if via is None else None,
        facts={"in_place": in_place},
    )


def _fix(run: RunQuery, made: Event, wrap: Event, in_place: bool) -> Fix | None:
    """The two statements change places, where they follow each other and nothing else is asked of them."""
    module = made.module
    if module is not wrap.module or module.path != run.path:
        return None
    pair = _neighbours(function_of(module, made.node), made.node, wrap.node)
    if pair is None or not _is_plain(made, wrap, pair, in_place):
        return None
    one, other = (module.span(statement) for statement in pair)
    source = module.source.text
    line = source[other.end : source.find("\n", other.end)] if "\n" in source[other.end :] else source[other.end :]
    if source[one.end : other.start].strip() or line.strip():
        return None  # a comment, or more on the line
    swapped = (
        Edit(run.path, one, source[other.start : other.end]),
        Edit(run.path, other, source[one.start : one.end]),
    )
    return Fix("Shard the model first", swapped)


def _neighbours(scope: ast.AST, made: ast.AST, wrap: ast.AST) -> tuple[ast.stmt, ast.stmt] | None:
    """Return the statements of two calls where one follows the other."""
    for node in ast.walk(scope):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            block = block if isinstance(block, list) else []
            for first, last in pairwise(block):
                if getattr(first, "value", None) is made and getattr(last, "value", None) is wrap:
                    return first, last
    return None


def _is_plain(made: Event, wrap: Event, pair: tuple[ast.stmt, ast.stmt], in_place: bool) -> bool:
    """`Optimizer(model.parameters(), ...)`, and a statement that leaves the sharded model in the same variable."""
    module, (first, last) = made.module, pair
    params, model = made.nodes.get("params"), wrap.nodes.get("module")
    if not isinstance(model, ast.Name | ast.Attribute) or params is None:
        return False
    text = module.text(model)
    if module.text(params) != f"{text}.parameters()" or not isinstance(first, ast.Assign):
        return False
    if isinstance(last, ast.Expr):
        return in_place
    return isinstance(last, ast.Assign) and len(last.targets) == 1 and module.text(last.targets[0]) == text


_HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


"""
_TRAIN = (
    _HEAD
    + """\
def train(model, loader, rank):
%s
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)
_MADE = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"
_WRAP = "    model = FSDP(model, device_id=rank)"
_GROUPS = (
    _HEAD
    + """\
def make_optimizer(net, lr):
    groups = [
        {"params": [p for n, p in net.named_parameters() if "bias" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in net.named_parameters() if "bias" in n], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


def main(model, loader, rank):
    optimizer = make_optimizer(model, 1e-4)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    model = FSDP(model, device_id=rank%s)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        scheduler.step()
"""
)
_RUN = (
    _HEAD
    + """\
class Run:
    def __init__(self, model, rank):
        self.model = model.to(rank)
        self.optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, self.model.parameters()), lr=0.1)
        self.model = FSDP(self.model, device_id=rank)
%s
    def train(self, loader):
        for batch in loader:
            self.model(batch).mean().backward()
            self.optimizer.step()
"""
)

EXAMPLES = (
    bad(
        "groups that a helper of another file makes, and a wrapper in another one",
        {
            "groups.py": "def split(net):\n    decayed = [p for p in net.parameters() if p.ndim > 1]\n"
            "    plain = [p for p in net.parameters() if p.ndim <= 1]\n"
            '    return [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]\n',
            "wrapping.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
            "def shard(net):\n    return FSDP(net, use_orig_params=False)\n",
            "train.py": "import torch\nimport torch.distributed as dist\n\n"
            "from groups import split\nfrom wrapping import shard\n\n\n"
            "def main(net, loader):\n    dist.init_process_group('nccl')\n"
            "    optimizer = torch.optim.AdamW(split(net))\n    net = shard(net)\n"
            "    for batch in loader:\n        net(batch).mean().backward()\n        optimizer.step()\n"
            "    dist.destroy_process_group()\n\n\nmain(torch.nn.Linear(4, 4), torch.ones(2, 4))\n",
        },
        "train.py:10",
    ),
    bad(
        "the optimizer, then the wrapper",
        {"train.py": _TRAIN % f"{_MADE}\n{_WRAP}"},
        "train.py:7",
        fixed={"train.py": _TRAIN % f"{_WRAP}\n{_MADE}"},
    ),
    bad(
        "sharded in place",
        {
            "train.py": _TRAIN
            % f"{_MADE}\n    for block in model.blocks:\n        fully_shard(block)\n    fully_shard(model)"
        },
        "train.py:7",
    ),
    bad(
        "a wrapper under another name",
        {"train.py": (_TRAIN % f"{_MADE}\n    net = FSDP(model, device_id=rank)").replace(" model(b", " net(b")},
        "train.py:7",
    ),
    bad("groups that a helper makes", {"train.py": _GROUPS % ""}, "train.py:15"),
    bad("attributes of an object", {"train.py": _RUN % ""}, "train.py:9"),
    bad(
        "a list of parameters, handed to the loop with the wrapper",
        {
            "train.py": _HEAD + "def steps(model, optimizer, loader):\n    for batch in loader:\n"
            "        model(batch).mean().backward()\n        optimizer.step()\n\n\n"
            "def main(net, loader, rank):\n    trained = [p for p in net.parameters() if p.requires_grad]\n"
            "    optimizer = torch.optim.AdamW(trained)\n    net = FSDP(net, use_orig_params=False)\n"
            "    steps(net, optimizer, loader)\n"
        },
        "train.py:14",
    ),
    good("the wrapper first", {"train.py": _TRAIN % f"{_WRAP}\n{_MADE}"}),
    good("sharded in place first", {"train.py": _TRAIN % f"    fully_shard(model)\n{_MADE}"}),
    good(
        "the wrapper keeps the parameters, or may",
        {
            "train.py": _TRAIN % f"{_MADE}\n{_WRAP.replace(')', ', use_orig_params=True)')}",
            "may.py": _TRAIN % f"{_MADE}\n{_WRAP.replace(')', ', use_orig_params=rank.keeps)')}",
            "open.py": _TRAIN % f"{_MADE}\n{_WRAP.replace(')', ', **rank.options)')}",
            "groups.py": _GROUPS % ", use_orig_params=True",
        },
    ),
    good(
        "made again afterwards",
        {
            "train.py": _TRAIN % f"{_MADE}\n{_WRAP}\n{_MADE}",
            "run.py": _RUN % "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n",
        },
    ),
    good(
        "another model",
        {
            "train.py": _TRAIN % f"    head = torch.nn.Linear(8, 8)\n"
            f"    optimizer = torch.optim.AdamW(head.parameters())\n{_WRAP}",
            "later.py": _TRAIN % f"{_MADE}\n    model = torch.nn.Linear(8, 8)\n{_WRAP}",
        },
    ),
    good(
        "an arm without the wrapper",
        {
            "train.py": _TRAIN % f"    if rank is None:\n    {_MADE}\n    else:\n    {_WRAP}\n    {_MADE}",
        },
    ),
    good(
        "parameters that stay outside",
        {"train.py": _TRAIN % f"{_MADE}\n{_WRAP.replace(')', ', ignored_modules=[model.head])')}"},
    ),
    good(
        "groups that are written anew, and an optimizer that is prepared",
        {
            "train.py": _TRAIN
            % f"{_MADE}\n{_WRAP}\n    optimizer.param_groups[0]['params'] = list(model.parameters())",
            "prepared.py": _HEAD + "from accelerate import Accelerator\n\n\n"
            "def main(model, loader):\n    accelerator = Accelerator()\n"
            "    optimizer = torch.optim.AdamW(model.parameters())\n"
            "    model = FSDP(model)\n    optimizer, loader = accelerator.prepare(optimizer, loader)\n"
            "    for batch in loader:\n        accelerator.backward(model(batch).mean())\n        optimizer.step()\n",
        },
    ),
)  # fmt: skip
