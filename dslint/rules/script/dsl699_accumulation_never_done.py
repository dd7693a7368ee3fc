"""The script counts on accumulated gradients, and its loop steps the optimizer after each micro batch.

**What.** `gradient_accumulation_steps` goes into the batch size that is logged, the learning rate or the length of the
schedule, or is handed to `Accelerator(...)`; but the training loop runs backward and the step of the optimizer in every
turn: no test of the number of the turn, and no `with accelerator.accumulate(model):`.

**Why it hurts.** The option accumulates nothing. The run trains with a batch that is as many times smaller as the
option says, with a learning rate and a schedule that are meant for the large one, and the log states a batch that no
step had. With accelerate each loss is divided by the number as well: the gradients are too small for the clipping.

**Fix.** Step and clear the gradients in every n-th turn (with `no_sync` in the others), or put the body of the loop in
`with accelerator.accumulate(model):`.

**When it stays quiet.** Some test around the step asks for the turn, for accumulation or for what may mean it; the
project speaks of `accumulate`, `no_sync` or their relatives; the number is used in another way than multiplying and
dividing; DeepSpeed, which accumulates by itself. A default of 1 that nobody changes makes it an information.

**Evidence.** accelerate 1.15 `Accelerator.backward` and `AcceleratedOptimizer.step`: the loss is divided by
`gradient_accumulation_steps`, and every step is made as long as `sync_gradients` is true, which only `accumulate`
changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Loop, Node
from dslint.python.queries.asked import in_words
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import ACCELERATOR
from dslint.rules.training.training import COUNTS, last_name
from dslint.rules.wrapping.ddppasses import PLUGINS, is_reduced

META = RuleMeta(
    code="DSL699",
    name="accumulation-never-done",
    kind="script",
    severity=Severity.WARNING,
    summary="a number of accumulated micro batches is counted on, and the optimizer steps after each of them",
    markers=(r"DistributedDataParallel|DDP|Accelerator", r"(?i)accum|\bgas\b", r"backward\("),
    references=(
        "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation",
        "https://github.com/tianweiy/DMD2/issues/23",
    ),
    depends_on_run=True,
    no_experiment="the steps can be counted in one process",
)
_STEPS = ("optimizer-step", "scaler-step", "steps")
_KNOWS = re.compile(
    r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|\baccumulate\(|sync_gradients|accumulate_grad|GradientAccumul"
    r"|deepspeed\.initialize|DeepSpeedPlugin|\.train_batch\(|lightning|gradient_accumulation_plugin"
)
# A test with such a word may be the one of the turn.
_MAY_ASK = re.compile(
    r"(?i)accum|\bgas\b|%|sync|bound|update|micro|should|is_?last|do_?step|every|turn|ready|count|step|iter"
)
_LOGS = re.compile(r"(?i)print|log|info|debug|write|str|format|int$|float$|min$|max$")


@dataclass(frozen=True, slots=True)
class _Counted:
    """Where the number is counted on, by what name, and whether more than 1 may be meant."""

    module: Module
    node: ast.AST
    name: str
    is_open: bool


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loop that steps in every turn, where a number of turns for a step is counted on."""
    modules = run.machine.program.modules()
    if run.stage is not None or any(module.search(_KNOWS) for module in modules):
        return
    counted = _told(run, modules)
    seen: set[int] = set()
    for found in run.occurrences("backward") if counted is not None else ():
        loop = next((node for node in reversed(found.around) if isinstance(node, Loop)), None)
        if loop is None or id(loop.node) in seen or found.event.may or not is_reduced(run, found.event):
            continue
        mine = [step for step in run.occurrences(*_STEPS) if any(node is loop for node in step.around)]
        if mine and counted is not None and all(_in_every_turn(step, loop) for step in (*mine, found)):
            seen.add(id(loop.node))
            yield _finding(run, mine[0], found, counted)


def _in_every_turn(found: Happening, loop: Loop) -> bool:
    """Return whether something happens in each turn of the loop itself, as far as the words of the tests say."""
    at = next(number for number, node in enumerate(found.around) if node is loop)
    inside: tuple[Node, ...] = found.around[at + 1 :]
    return not any(isinstance(n, Loop) or (isinstance(n, Alt) and _MAY_ASK.search(in_words(n))) for n in inside)


def _told(run: RunQuery, modules: list[Module]) -> _Counted | None:
    """Return where the script counts on accumulation; `None` where it does not, or uses the number in another way."""
    found: _Counted | None = None
    made = [h.event for h in run.happenings("starts-group") if h.event.api == ACCELERATOR]
    if any(event.open or set(PLUGINS) & set(event.arguments) for event in made):
        return None
    for event in made:
        stated = event.accumulation
        if stated is not None and stated.constants != (1,):
            name = last_name(event.nodes.get("gradient_accumulation_steps")) or "gradient_accumulation_steps"
            is_open = stated.constants is not None or run.likely(stated) != (1,) or _is_passed(run, name)
            found = _Counted(event.module, event.node, name, is_open)
    defined = {function.name for module in modules for function in module.functions}
    for module in modules:
        for node in module.nodes_of(ast.Name, ast.Attribute, ast.Subscript):
            if not isinstance(getattr(node, "ctx", None), ast.Load) or not COUNTS.search(last_name(node)):
                continue
            use = _use(module, node, defined)
            if use == "other":
                return None
            if use == "counts" and found is None:
                found = _Counted(module, node, last_name(node), _may_be_more(run, modules, last_name(node)))
    return found


def _use(module: Module, node: ast.AST, defined: set[str]) -> str:
    """Return what becomes of the number: it counts (multiplies, divides), is named only, or is used otherwise."""
    inner, outer = node, module.parents.get(node)
    while outer is not None:
        if isinstance(outer, ast.BinOp | ast.AugAssign):
            return "counts" if isinstance(outer.op, ast.Mult | ast.Div | ast.FloorDiv) else "other"
        if isinstance(outer, ast.FormattedValue | ast.Expr):
            return "named"
        if isinstance(outer, ast.keyword | ast.Assign | ast.AnnAssign):
            return "named" if _is_handed_on(module, outer, defined) else "other"
        if isinstance(outer, ast.Call) and inner is not outer.func:
            name = last_name(outer.func)
            return "named" if name in defined or _LOGS.search(name) else "other"
        if not isinstance(outer, ast.Attribute | ast.Subscript | ast.Tuple | ast.JoinedStr | ast.Call):
            return "other"
        inner, outer = outer, module.parents.get(outer)
    return "other"


def _is_handed_on(module: Module, node: ast.keyword | ast.Assign | ast.AnnAssign, defined: set[str]) -> bool:
    """Return whether the number goes on under a name of its own, within the project, to a log or to accelerate."""
    if isinstance(node, ast.keyword):
        call = module.parents.get(node)
        name = last_name(call.func) if isinstance(call, ast.Call) else ""
        is_known = name in defined or name == "Accelerator" or _LOGS.search(name) is not None
        return is_known and COUNTS.search(node.arg or "") is not None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(COUNTS.search(last_name(target)) for target in targets)


def _is_passed(run: RunQuery, name: str) -> bool:
    """Return whether a command passes another number than 1."""
    passed = run.context.arguments.get(name)
    return passed is not None and not (passed.is_known and str(passed.value) == "1")


def _may_be_more(run: RunQuery, modules: list[Module], name: str) -> bool:
    """Return whether the number may be more than a default of 1: something else is given to it somewhere."""
    if _is_passed(run, name):
        return True
    for module in modules:
        for call in module.nodes_of(ast.Call):
            if any(keyword.arg is None for keyword in call.keywords) and _takes(modules, last_name(call.func), name):
                return True
        for value in _given(module, name):
            if not isinstance(value, ast.Constant) or value.value not in (1, None):
                return True
    return False


def _takes(modules: list[Module], function: str, name: str) -> bool:
    return any(
        name in {argument.arg for argument in (*f.args.args, *f.args.kwonlyargs)}
        for module in modules
        for f in module.functions
        if f.name == function
    )


def _given(module: Module, name: str) -> Iterator[ast.expr]:
    """Yield what a file gives to the number by default, or for good."""
    for call in module.nodes_of(ast.Call):
        words = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if last_name(call.func) == "add_argument" and any(w.lstrip("-").replace("-", "_") == name for w in words):
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "default")
    given = [(target, node.value) for node in module.nodes_of(ast.Assign) for target in node.targets]
    given += [(node.target, node.value) for node in module.nodes_of(ast.AnnAssign) if node.value is not None]
    yield from (value for target, value in given if last_name(target) == name and not COUNTS.search(last_name(value)))
    for function in module.functions:
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(positional[::-1], arguments.defaults[::-1], strict=False)]
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        yield from (default for argument, default in pairs if argument.arg == name)


def _finding(run: RunQuery, step: Happening, backward: Happening, counted: _Counted) -> Finding:
    return run.finding(
        META,
        step.event.module,
        step.event.node,
        f"the optimizer steps after each micro batch: `{counted.name}` accumulates nothing, though it is counted on",
        hint="Step in every n-th iteration only (`no_sync` in the others), or use `accelerator.accumulate(model)`",
        related=(
            run.location(counted.module, counted.node, "accumulation is counted on here"),
            run.location(backward.event.module, backward.event.node, "the gradients of one micro batch"),
        ),
        severity=None if counted.is_open else Severity.INFO,
        facts={"accelerate": backward.event.api.startswith(ACCELERATOR)},
    )


_DDP = """\
import argparse
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(args, model, optimizer, schedule, loader):
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            %s


def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=%s)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = math.ceil(len(loader) / args.gradient_accumulation_steps) * args.epochs
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    if dist.get_rank() == 0:
        print(f"total batch {32 * dist.get_world_size() * args.gradient_accumulation_steps}")
    train(args, model, optimizer, schedule, loader)


if __name__ == "__main__":
    main(torch.load("loader.pt"))
"""
_EACH = """\
(model(x) - y).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()"""
_NTH = """\
if (step + 1) % args.gradient_accumulation_steps:
                with model.no_sync():
                    (model(x) - y).square().mean().backward()
            else:
                (model(x) - y).square().mean().backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator


class Runner:
    def __init__(self, config, model, loader):
        self.accelerator = Accelerator(gradient_accumulation_steps=%s)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)

    def step(self, batch):
        loss = self.model(batch).mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self):
        for batch in self.loader:
            %s


Runner(torch.load("config.pt"), torch.nn.Linear(4, 1), torch.utils.data.DataLoader(torch.load("data.pt"))).fit()
"""
_INSIDE = "with self.accelerator.accumulate(self.model):\n                self.step(batch)"
_MIXED = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, learning_rate=1e-4, accum_steps=1, mixed=True, scale_lr=False):
    torch.distributed.init_process_group("gloo")
    if scale_lr:
        learning_rate = learning_rate * accum_steps * torch.distributed.get_world_size()
    optimizer = torch.optim.AdamW(net.parameters(), lr=learning_rate)
    scaler = torch.amp.GradScaler("cpu")
    model = DDP(net)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        if mixed:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()


def main(config):
    train(torch.nn.Linear(4, 1), torch.load("loader.pt"), **config)


main(torch.load("config.pt"))
"""

EXAMPLES = (
    bad("it goes into schedule and log", {"train.py": _DDP % (_EACH, "4")}, at="train.py:14 warning"),
    bad("none by default", {"train.py": _DDP % (_EACH, "1")}, at="train.py:14 info"),
    bad("a command asks for it", {
        "train.py": _DDP % (_EACH, "1"),
        "run.sh": "torchrun --nproc_per_node 8 train.py --gradient_accumulation_steps 8\n"}, at="train.py:14 warning"),
    bad("accelerate is told, and has no block", {"train.py": _ACCELERATE % ("8", "self.step(batch)")}, "train.py:14"),
    bad("a number of the configuration", {
        "train.py": _ACCELERATE % ("config['accumulation']", "self.step(batch)")}, "train.py:14"),
    bad("two ways to step", {"train.py": _MIXED}, at="train.py:17 warning"),
    good("every n-th micro batch", {"train.py": _DDP % (_NTH, "4")}),
    good("a block of accelerate", {"train.py": _ACCELERATE % ("8", _INSIDE)}),
    good("accelerate accumulates one", {"train.py": _ACCELERATE % ("1", "self.step(batch)")}),
    good("nobody counts on it", {
        "train.py": (_DDP % (_EACH, "4")).replace(" * args.gradient_accumulation_steps", "").replace(
            " / args.gradient_accumulation_steps", "").replace(
            "32 * dist", "args.gradient_accumulation_steps, 32 * dist")}),
)  # fmt: skip
