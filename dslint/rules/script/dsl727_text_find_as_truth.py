"""The position that `text.find(...)` gives is used as a truth value.

**What.** `if name.find("conv2."):` or `elif not name.find("bias"):` where the receiver is a text; also
`name.find("bias") is not None`.

**Why it hurts.** `find` gives -1 where the text is missing, and -1 is true; it gives 0, which is false, where the text
begins with it. The test holds for nearly everything: no parameter is frozen, every one is left out of weight decay, all
keys of a checkpoint are renamed. Nothing raises, and the option that the test serves has no effect.

**Fix.** `if "conv2." in name:`, or `name.startswith("conv2.")` where the beginning is meant.

**When it stays quiet.** A `find` that is no method of a text (`root.find("node")` of an XML tree, `soup.find("a")`);
a position that is compared (`name.find("bias") == 0`, `>= 0`), kept or passed to a call; scripts that train nothing.

**Evidence.** Python's `str.find`: "Return -1 if sub is not found"; `bool(-1)` is true.
"""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.parse import cst
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL727",
    name="text-find-as-truth",
    kind="script",
    severity=Severity.WARNING,
    summary="the position that `text.find(...)` gives is used as a truth value: -1 is true",
    markers=(r"\.r?find\(", r"torch|deepspeed|accelerat|transformers|lightning"),
    references=("https://docs.python.org/3/library/stdtypes.html#str.find",),
    no_experiment="the test goes the same way in each process",
)
_FINDS = ("find", "rfind")
# Methods that nothing but a text has: who calls one of them on a name holds a text there.
_OF_TEXTS = frozenset(
    {
        "split",
        "rsplit",
        "startswith",
        "endswith",
        "strip",
        "lstrip",
        "rstrip",
        "lower",
        "upper",
        "replace",
        "splitlines",
    }
)


class Check(ScriptCheck):
    """Looks at what becomes of positions in texts."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where a position decides by its truth."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value not in _FINDS or not node.args:
            return
        how = self._used(node)
        if not how or not self._is_text(node.func.value):
            return
        text = self.ctx.text(node)
        shown = text if len(text) <= 45 else f"{text[:42]}..."
        said = (
            f"`{shown}` is never None: the test always goes the same way"
            if how == "none"
            else f"`{shown}` gives -1 for a text without it, and -1 is true: the test holds for nearly all texts"
        )
        wanted, begun = self.ctx.text(node.args[0].value), self.ctx.text(node.func.value)
        self.report(node, said, hint=f"Write `{wanted} in {begun}`, or use `startswith`")

    def _used(self, node: cst.Call) -> str:
        """Return how a position is used: by its `truth`, or compared with `none`; else nothing."""
        inner: cst.CSTNode = node
        for parent in self.ctx.parents(node):
            if isinstance(parent, cst.UnaryOperation):
                return "truth" if isinstance(parent.operator, cst.Not) else ""
            if isinstance(parent, cst.Comparison):
                return self._compared(parent, inner)
            if isinstance(parent, cst.If | cst.IfExp | cst.While | cst.Assert | cst.CompIf):
                return "truth" if parent.test is inner else ""
            if not isinstance(parent, cst.BooleanOperation):
                return ""
            inner = parent
        return ""

    def _compared(self, comparison: cst.Comparison, inner: cst.CSTNode) -> str:
        if comparison.left is not inner or len(comparison.comparisons) > 1:
            return ""
        other = comparison.comparisons[0]
        is_identity = isinstance(other.operator, cst.Is | cst.IsNot | cst.Equal | cst.NotEqual)
        is_none = isinstance(other.comparator, cst.Name) and other.comparator.value == "None"
        return "none" if is_identity and is_none else ""

    def _is_text(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression certainly holds a text: by its value, or by what else is done with it."""
        if self.ctx.is_text(node):
            return True
        if self.ctx.class_of(node) or self.ctx.is_own(node):
            return False
        around, name = self.ctx.enclosing_function(node), self.ctx.text(node)
        for call in self.ctx.tree.every(cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute):
                continue
            if func.attr.value not in _OF_TEXTS and not (func.attr.value in _FINDS and self._is_counted(call)):
                continue
            if self.ctx.text(func.value) == name and self.ctx.enclosing_function(call) is around:
                return True
        return False

    def _is_counted(self, node: cst.Call) -> bool:
        """Return whether the result is compared with a whole number."""
        parent = self.ctx.parent(node)
        if not isinstance(parent, cst.Comparison) or parent.left is not node:
            return False
        return type(self.ctx.constant(parent.comparisons[0].comparator).get_or(None)) is int


_MODEL = """\
import torch

model = torch.nn.TransformerEncoderLayer(8, 2)
for name, parameter in model.named_parameters():
    %s
"""
_FREEZE = _MODEL % "if %s:\n        continue\n    parameter.requires_grad = False"
_KEYS = """\
import torch


def rename(path):
    found = {}
    for key, value in torch.load(path, map_location="cpu")["model"].items():
        if %s:
            found[key.replace("module.", "")] = value
    return found
"""
_TREE = """\
import xml.etree.ElementTree as ET

import torch


def boxes(path):
    root = ET.parse(path).getroot()
    return torch.tensor([float(o.find("x").text) for o in root if o.find("x") is not None and not o.find("bad")])
"""

EXAMPLES = (
    bad("names of parameters", {"train.py": _FREEZE % 'name.find("norm")'}, "train.py:5"),
    bad("the other way round", {"train.py": _FREEZE % 'not name.find("norm")'}, "train.py:5"),
    bad("one of several", {"train.py": _FREEZE % 'len(name) > 4 and name.rfind("norm")'}, "train.py:5"),
    bad("compared with None", {"train.py": _FREEZE % 'name.find("norm") is not None'}, "train.py:5"),
    bad("keys of a checkpoint, by what else is done with them", {"load.py": _KEYS % 'key.find("module")'}, "load.py:7"),
    bad(
        "a choice between two groups",
        {"train.py": _MODEL % 'decay = 0.0 if name.find("bias") else 0.1'},
        "train.py:5",
    ),
    bad(
        "names that a comprehension keeps",
        {"train.py": _MODEL % 'print([n for n, _ in model.named_modules() if n.find("norm")])'},
        "train.py:5",
    ),
    good("a position that is compared", {"train.py": _FREEZE % 'name.find("norm") >= 0'}),
    good("a text in another", {"train.py": _FREEZE % '"norm" in name'}),
    good("a position that is kept", {"train.py": _MODEL % 'at = name.find("norm")\n    print(name[at:])'}),
    good("a node of a tree", {"boxes.py": _TREE}),
    good(
        "nobody knows what it is",
        {"load.py": (_KEYS % 'key.find("module")').replace('key.replace("module.", "")', "key")},
    ),
)
