"""Scripts that share what modules did: each is interpreted as if it were alone, in whatever order they come."""

from __future__ import annotations

import ast
from itertools import permutations

import pytest

from dslint.python.entries import Analysis
from dslint.python.events import Alt, Call, Event, Node, Seq, children
from dslint.python.files import Texts
from dslint.python.shared import Shared
from dslint.python.values import ClassAtom, Function, Instance, Value
from dslint.python.varies import described

HEAD = "import torch.distributed as dist\n"
# A registry that one module fills and others read.
REGISTRY = {
    "registry.py": "MODELS = {}\n\ndef register(f):\n    MODELS[f.__name__] = f\n    return f\n",
    "models.py": HEAD + "from registry import register\n\n@register\ndef small(x):\n    dist.barrier()\n    return x\n",
    "a.py": "import models\nfrom registry import MODELS\n\nMODELS['small'](1)\n",
    "b.py": "from registry import MODELS\n\nif 'small' in MODELS:\n    MODELS['small'](1)\n",
}
# Two packages that import each other while they are being imported.
CYCLE = {
    "pkg/__init__.py": "LIMIT = 3\nfrom .inner import run\nfrom . import other\nLIMIT = 4\n",
    "pkg/inner.py": HEAD + "from . import LIMIT\n\ndef run():\n    for _ in range(LIMIT):\n        dist.barrier()\n",
    "pkg/other.py": HEAD + "import pkg\n\nclass Base:\n    def go(self):\n        dist.all_reduce(pkg.LIMIT)\n",
    "a.py": "from pkg import run\nrun()\n",
    "b.py": "from pkg.other import Base\nBase().go()\n",
    "c.py": "import pkg.inner\nimport pkg.other\npkg.inner.run()\npkg.other.Base().go()\n",
}
# What a module does depends on what the script did before the import.
SURROUNDINGS = {
    "device.py": HEAD + "import os\n_RANK = None\n\ndef rank():\n    global _RANK\n    if _RANK is None:\n"
    "        _RANK = int(os.environ.get('MY_RANK', '7'))\n    return _RANK\n",
    "early.py": HEAD + "from device import rank\nif rank() == 0:\n    dist.barrier()\n",
    "late.py": HEAD + "from device import rank\nSEEN = rank()\n",
    "a.py": "import os\nos.environ['MY_RANK'] = os.environ['RANK']\nimport early\nimport late\nprint(late.SEEN)\n",
    "b.py": "import late\nimport early\n",
    "c.py": "import os\nos.environ['MY_RANK'] = '0'\nimport early\n",
}
# A module that waits when it is imported, by two ways.
STARTS = {
    "start.py": HEAD + "dist.init_process_group('gloo')\n",
    "left.py": "import start\nX = 1\n",
    "right.py": "import start\nfrom left import X\n",
    "a.py": "import left\nimport right\n",
    "b.py": "import right\nimport left\n",
    "c.py": "import start\nimport right\n",
    "start_too.py": "import a\nimport start\n",
}

# Modules that are imported in blocks, and that do something then.
BLOCKS = {
    "ops/__init__.py": "try:\n    from .fast import run\nexcept ImportError:\n    from .slow import run\n",
    "ops/fast.py": HEAD
    + "import os\nif os.path.exists('x'):\n    import ops.start\n\ndef run():\n    dist.barrier()\n",
    "ops/slow.py": HEAD + "KIND = 'slow'\n\ndef run():\n    dist.all_reduce(KIND)\n",
    "ops/start.py": HEAD + "dist.init_process_group('gloo')\n",
    "a.py": "from ops import run\nrun()\n",
    "b.py": "import ops.start\nfrom ops import run\nrun()\n",
    "c.py": "def later():\n    from ops import run\n    run()\n\nlater()\nimport ops.start\n",
    "d.py": "import ops.slow\nops.slow.KIND = 3\nfrom ops import run\nrun()\n",
}


def dumped(node: Node) -> object:
    """The tree of events as plain data."""
    if isinstance(node, Event):
        given = {name: shown(value) for name, value in node.arguments.items()}
        return (node.api, line(node.node), bin(node.lanes), sorted(node.tags), given)
    head: tuple[object, ...] = (type(node).__name__,)
    if isinstance(node, Alt):
        head += (line(node.node), bin(node.then_lanes), bin(node.else_lanes), described(node.varies))
    if isinstance(node, Call):
        head += (line(node.node), getattr(node.function, "name", str(node.function)))
    inner = [dumped(child) for child in children(node)]
    return (*head, [child for child in inner if child != ("Seq", [])])


def line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def shown(value: Value) -> object:
    return (sorted(map(atom_text, value.atoms)), described(value.varies))


def atom_text(atom: object) -> str:
    if isinstance(atom, Instance):
        return f"object {line(atom.node)} {atom_text(atom.cls)}"
    if isinstance(atom, ClassAtom | Function):
        return f"{type(atom).__name__} {atom.node.lineno}"
    return str(atom)


def trees(texts: dict[str, str], script: str, shared: Shared | None = None) -> object:
    analysis = Analysis(Texts(texts), shared=shared)
    analysis.script(script)
    entries = [(entry.kind, line(entry.node), dumped(entry.tree)) for entry in analysis.entries]
    return entries, sorted(analysis.machine.lost.items()), sorted(analysis.program.noted.asked)


@pytest.mark.parametrize(
    "texts", [REGISTRY, CYCLE, SURROUNDINGS, STARTS, BLOCKS], ids=["registry", "cycle", "env", "starts", "blocks"]
)
def test_a_script_after_others_is_as_if_it_were_alone(texts: dict[str, str]) -> None:
    scripts = [name for name in texts if "/" not in name and len(name) == len("a.py")] + list(texts)[-1:]
    alone = {script: trees(texts, script) for script in scripts}
    for order in permutations(dict.fromkeys(scripts)):
        shared = Shared()
        for script in order:
            assert trees(texts, script, shared) == alone[script], (script, order)


def test_the_bodies_of_modules_run_once() -> None:
    shared = Shared()
    for script in ("a.py", "c.py", "b.py"):
        trees(CYCLE, script, shared)
    assert {path: len(runs) for path, runs in shared.runs.items()} == {
        "/project/pkg/__init__.py": 1,
        "/project/pkg/inner.py": 1,
        "/project/pkg/other.py": 1,
    }


def test_a_seq_of_nothing_is_nothing() -> None:
    assert dumped(Seq([])) == ("Seq", [])
