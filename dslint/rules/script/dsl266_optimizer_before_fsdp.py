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

import re
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import dotted, is_none
from dslint.model.script.parameters import position_of
from dslint.model.script.training.optimizerlook import may_make_optimizer_before_sharding
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

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

_FSDP = frozenset(
    f"torch.distributed.fsdp.{module}FullyShardedDataParallel" for module in ("", "fully_sharded_data_parallel.")
)
_IN_PLACE = frozenset({"torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard"})
_IGNORED = ("ignored_modules", "ignored_parameters", "ignored_states", "ignored_params")
_GIVES = frozenset({"parameters", "named_parameters"})
_REWRITTEN = re.compile(r"\[\s*['\"]params['\"]\s*\]|add_param_group")
_TAKERS = ("prepare", "setup", "initialize")
_MAX_STEPS = 4


precheck = may_make_optimizer_before_sharding


class Check(ScriptCheck):
    """Looks at every optimizer that is made before a model is sharded."""

    def finish(self) -> None:
        """Report each optimizer once."""
        calls = [n for n in self.ctx.tree.order if isinstance(n, cst.Call)]
        wraps = [c for c in calls if self._replaces(c)]
        text = self.ctx.doc.source.text
        if not wraps or ("param_groups" in text and _REWRITTEN.search(text)) or "add_param_group" in text:
            return
        seen: set[int] = set()
        for wrap in wraps:
            for site, target in self._optimizers_before(wrap):
                made = self.ctx.objects.made(site)
                if made is not None and id(site) not in seen and self._takes(made, site, wrap):
                    binding = self._binding(target, site)
                    if binding is not None and self._is_used(target, binding, wrap):
                        seen.add(id(site))
                        self._report(site, made, wrap)

    def _replaces(self, call: cst.Call) -> bool:
        """A call after which the model has other parameters, as far as the file tells."""
        name = self.ctx.qualified_name(call.func)
        if name not in _FSDP and name not in _IN_PLACE:
            return False
        if self.ctx.has_unpacked_arguments(call) or any(self.ctx.argument(call, word) for word in _IGNORED):
            return False
        keeps = self.ctx.argument(call, "use_orig_params")
        return keeps is None or (name in _FSDP and self.ctx.constant(keeps).get_or(None) is False)

    def _optimizers_before(self, wrap: cst.Call) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
        """The assignments of optimizers that stand before a call in its function."""
        scope = self.ctx.enclosing_function(wrap) or self.ctx.doc.module
        for node in self.ctx.tree.own_nodes(scope):
            site = node.value if isinstance(node, cst.Assign | cst.AnnAssign) else None
            if not isinstance(site, cst.Call) or self.ctx.tree.position(site) > self.ctx.tree.position(wrap):
                continue
            targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]  # type: ignore[attr-defined]
            if not self.ctx.excludes(site, wrap) and self.ctx.kind(site) == "optimizer":
                yield from ((site, target) for target in targets if dotted(target))

    def _takes(self, made: cst.Call, site: cst.Call, wrap: cst.Call) -> bool:
        """The optimizer is made of parameters of the very model that is sharded."""
        model = self.ctx.argument(wrap, "module", 0)
        params = self.ctx.argument(made, "params", 0)
        if not isinstance(model, cst.Name | cst.Attribute) or params is None:
            return False
        owners = [self._at(owner, made, site) for owner in self._owners(params, 0)]
        return any(owner is not None and self._is_same(owner, model) for owner in owners)

    def _owners(self, params: cst.BaseExpression, depth: int) -> Iterator[cst.BaseExpression]:
        """The models of `model.parameters()` in an expression, also behind variables."""
        for node in self.ctx.descendants(params):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _GIVES:
                yield node.func.value
            elif isinstance(node, cst.Name) and depth < _MAX_STEPS:
                found = self.ctx.objects.reached(node)
                if len(found) == 1 and found[0].kind == "assign" and found[0].value is not None:
                    yield from self._owners(found[0].value, depth + 1)

    def _at(self, owner: cst.BaseExpression, made: cst.Call, site: cst.Call) -> cst.BaseExpression | None:
        """What a helper was given for the model that it takes the parameters of."""
        if made is site:
            return owner
        helper = self.ctx.names.local_function(site)
        if helper is None or helper is not self.ctx.enclosing_function(made) or not isinstance(owner, cst.Name):
            return None
        at = position_of(self.ctx.tree, site, helper, owner.value)
        if at is None or any(b.kind != "param" for b in self.ctx.objects.reached(owner)):
            return None
        return self.ctx.argument(site, owner.value, at)

    def _is_same(self, owner: cst.BaseExpression, model: cst.Name | cst.Attribute) -> bool:
        """The two mean one object: the same variable, and the same assignments before both."""
        if not isinstance(owner, cst.Name | cst.Attribute) or dotted(owner) != dotted(model):
            return False
        here, there = (set(map(id, self.ctx.objects.reached(node))) for node in (owner, model))
        return bool(here) and here == there

    def _binding(self, target: cst.BaseExpression, site: cst.Call) -> Binding | None:
        """The assignment of the optimizer."""
        if isinstance(target, cst.Name):
            found = self.ctx.names.bindings(target.value, target)
        else:
            found = self.ctx.names.attribute_bindings(target) if isinstance(target, cst.Attribute) else []
        return next((b for b in found if b.value is site), None)

    def _is_used(self, target: cst.BaseExpression, binding: Binding, wrap: cst.Call) -> bool:
        """After the model was sharded this optimizer steps, or goes on to others, and nothing prepares it."""
        uses = list(self._uses(target, wrap))
        for use in uses:
            if [b for b in self.ctx.objects.reached(use) if b is not binding and not is_none(b.value)]:
                return False
            parent = self.ctx.parent(use)
            call = self.ctx.parent(parent) if isinstance(parent, cst.Arg) else None
            if isinstance(call, cst.Call) and self.ctx.called(call).startswith(_TAKERS):
                return False
        return any(self._goes_on(use) for use in uses)

    def _uses(self, target: cst.BaseExpression, wrap: cst.Call) -> Iterator[cst.Name | cst.Attribute]:
        text, here = dotted(target), self.ctx.enclosing_function(wrap)
        for node in self.ctx.tree.some(cst.Name, cst.Attribute):
            if not isinstance(node, cst.Name | cst.Attribute) or dotted(node) != text:
                continue
            if isinstance(self.ctx.parent(node), cst.Attribute | cst.AssignTarget | cst.Param | cst.Arg):
                parent = self.ctx.parent(node)
                is_part = isinstance(parent, cst.Attribute) and parent.attr is node
                is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
                if is_part or is_keyword or isinstance(parent, cst.AssignTarget | cst.Param):
                    continue
            if isinstance(node, cst.Name) and self.ctx.names.bindings(node.value, node) != self._all(target):
                continue
            is_here = self.ctx.enclosing_function(node) is here
            if is_here and self.ctx.tree.position(node) < self.ctx.tree.position(wrap):
                continue
            if not self.ctx.excludes(node, wrap):
                yield node

    def _all(self, target: cst.BaseExpression) -> list[Binding]:
        return self.ctx.names.bindings(target.value, target) if isinstance(target, cst.Name) else []

    def _goes_on(self, use: cst.Name | cst.Attribute) -> bool:
        parent = self.ctx.parent(use)
        if isinstance(parent, cst.Attribute):
            return parent.attr.value == "step"
        return isinstance(parent, cst.Arg | cst.Return) or isinstance(self.ctx.parent(parent or use), cst.Tuple)

    def _report(self, site: cst.Call, made: cst.Call, wrap: cst.Call) -> None:
        model = self.ctx.text(self.ctx.argument(wrap, "module", 0) or wrap)
        in_place = self.ctx.qualified_name(wrap.func) in _IN_PLACE
        does = "`fully_shard`" if in_place else "FSDP"
        related = [self.ctx.location(wrap, "sharded here")]
        if made is not site:
            related.append(self.ctx.location(made, "made here"))
        self.report(
            site,
            f"the optimizer holds the parameters that `{model}` has before {does} replaces them: none of them gets a "
            "gradient afterwards, and its steps change nothing",
            hint="Make the optimizer after the model is sharded" + ("" if in_place else ", from the wrapper"),
            related=tuple(related),
            fix=self._fix(site, made, wrap),
            facts={"in_place": in_place},
        )

    def _fix(self, site: cst.Call, made: cst.Call, wrap: cst.Call) -> Fix | None:
        """The two statements change places, where they follow each other and nothing else is asked of them."""
        lines = [self.ctx.tree.enclosing(call, cst.SimpleStatementLine) for call in (site, wrap)]
        first, last = lines
        if not isinstance(first, cst.SimpleStatementLine) or not isinstance(last, cst.SimpleStatementLine):
            return None
        block = self.ctx.parent(first)
        body = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
        if made is not site or first not in body[:-1] or body[body.index(first) + 1] is not last:
            return None
        if any(
            len(s.body) != 1 or s.trailing_whitespace.comment or (s is last and s.leading_lines) for s in (first, last)
        ):
            return None
        if not self._is_plain(made, wrap, last.body[0]):
            return None
        one, other = (self.ctx.span(s.body[0]) for s in (first, last))
        source, path = self.ctx.doc.source.text, self.ctx.doc.path
        swapped = (Edit(path, one, source[other.start : other.end]), Edit(path, other, source[one.start : one.end]))
        return Fix("Shard the model first", swapped)

    def _is_plain(self, made: cst.Call, wrap: cst.Call, statement: cst.BaseSmallStatement) -> bool:
        """`Optimizer(model.parameters(), ...)`, and a statement that leaves the sharded model in the same variable."""
        params, model = self.ctx.argument(made, "params", 0), self.ctx.argument(wrap, "module", 0)
        if dotted(model) is None or self.ctx.text(params or made) != f"{dotted(model)}.parameters()":
            return False
        if isinstance(statement, cst.Expr):
            return statement.value is wrap and self.ctx.qualified_name(wrap.func) in _IN_PLACE
        if not isinstance(statement, cst.Assign) or statement.value is not wrap or len(statement.targets) != 1:
            return False
        return dotted(statement.targets[0].target) == dotted(model)
