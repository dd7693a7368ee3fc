"""The name that `from tqdm import tqdm` brings is used as if it were the module.

**What.** `from tqdm import tqdm` and then `tqdm.tqdm(files)`; `from datetime import datetime` and then
`datetime.timedelta(hours=1)`; `from time import time` and then `time.sleep(1)`.

**Why it hurts.** The class or function has no such attribute: `AttributeError` when a run comes to the line, which may
be a merge or a report after hours of work.

**Fix.** Drop the first part (`tqdm(files)`), or import the module (`import tqdm`).

**When it stays quiet.** The name is imported as the module, too, or bound by something else; the class or function has
the attribute, or code sets it; a handler of the `AttributeError`; code that no run reaches.

**Evidence.** CPython 3.11 and tqdm 4.67 raise `AttributeError`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.names import Names, names_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught
from dslint.rules.names.reached import is_asked
from dslint.rules.names.refusedlines import severity_at
from dslint.rules.runs import RunQuery

_TQDM = frozenset(("tqdm", "trange", "auto", "notebook", "tqdm_notebook", "std", "contrib", "autonotebook", "tnrange"))
_CLASSES = {
    "datetime.datetime": frozenset(("datetime", "timedelta", "timezone", "MINYEAR", "MAXYEAR")),
    "datetime.date": frozenset(("date", "datetime", "timedelta", "timezone", "MINYEAR", "MAXYEAR")),
    "datetime.time": frozenset(("time", "datetime", "date", "timedelta", "timezone", "sleep")),
    "tqdm.tqdm": _TQDM,
    "tqdm.auto.tqdm": _TQDM,
    "tqdm.std.tqdm": _TQDM,
    "tqdm.notebook.tqdm": _TQDM,
    "tqdm.autonotebook.tqdm": _TQDM,
    "socket.socket": frozenset(
        ("socket", "gethostname", "gethostbyname", "create_connection", "AF_INET", "SOCK_STREAM", "SOL_SOCKET")
    ),
    "queue.Queue": frozenset(("Queue", "Empty", "Full")),
    "array.array": frozenset(("array", "typecodes")),
}
# Functions, which have no attributes of their own.
_FUNCTIONS = frozenset(
    ("time.time", "time.sleep", "glob.glob", "copy.copy", "copy.deepcopy", "pprint.pprint", "random.random",
     "random.randint", "bisect.bisect", "select.select", "signal.signal", "getpass.getpass", "fnmatch.fnmatch",
     "timeit.timeit", "gc.collect", "warnings.warn", "tqdm.trange", "tqdm.auto.trange", "shutil.copy", "math.sqrt",
     "math.log", "math.exp")
)  # fmt: skip
_KNOWN = _FUNCTIONS | set(_CLASSES)
META = RuleMeta(
    code="DSL737",
    name="import-taken-for-module",
    kind="script",
    severity=Severity.ERROR,
    summary="the name that `from tqdm import tqdm` brings is used as the module",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"from [\w.]+ import"),
    references=("https://docs.python.org/3/reference/simple_stmts.html#the-import-statement",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each attribute of a module that is asked of what was imported from it."""
    for module in run.machine.program.ran():
        if not any(f"{home}.{name}" in _KNOWN for found in module.imported.values() for home, name in found):
            continue
        names = names_of(module.tree)
        for node in module.nodes_of(ast.Attribute):
            brought = _brought(names, node)
            if brought is None or not _lacks(module, brought[0], node) or _is_tried(module, node):
                continue
            severity = severity_at(module, node, run.sure_ways)
            if severity is not None:
                yield _finding(run, module, node, brought, severity)


def _brought(names: Names, node: ast.Attribute) -> tuple[str, ast.ImportFrom] | None:
    """Return what the name before an attribute was imported as, and the import; `None` where it may be another."""
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name):
        return None
    found = names.bindings(node.value)
    origins = [b.node for b in found if isinstance(b.node, ast.ImportFrom)]
    targets = {b.target for b in found}
    return (targets.pop(), origins[0]) if len(origins) == len(found) and len(targets) == 1 else None


def _lacks(module: Module, target: str, node: ast.Attribute) -> bool:
    """Return whether what was imported has no such attribute, and nothing in the module sets it."""
    lacks = node.attr in _CLASSES.get(target, ()) or (target in _FUNCTIONS and not node.attr.startswith("_"))
    return lacks and not any(
        isinstance(other.ctx, ast.Store) and other.attr == node.attr for other in module.nodes_of(ast.Attribute)
    )


def _is_tried(module: Module, node: ast.Attribute) -> bool:
    return is_caught(module, node, "AttributeError") or is_asked(module, node)


def _finding(
    run: RunQuery, module: Module, node: ast.Attribute, brought: tuple[str, ast.ImportFrom], severity: Severity
) -> Finding:
    target, origin = brought
    name = ast.unparse(node.value)
    kind = "class" if target in _CLASSES else "function"
    home, _, own = target.rpartition(".")
    return run.finding(
        META,
        module,
        node,
        f"`{name}` is the {kind} `{target}` here, not the module: `{name}.{node.attr}` raises AttributeError",
        hint=f"Write `{name}` alone" if node.attr == own else f"Import `{node.attr}` from `{home}`, too",
        related=(run.location(module, origin, "imported here"),),
        severity=severity,
    )


_TRAIN = """\
import argparse
%s
import torch
import torch.distributed as dist
%s

def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for x in torch.load("data.pt"):
        model(x).mean().backward()
    if args.report:
        print(%s)
    return %s


parser = argparse.ArgumentParser()
parser.add_argument("--report", action="store_true")
main(parser.parse_args())
"""
_TQDM_IMPORT = "from tqdm import tqdm"
_TRIED = """
def bars(files):
    try:
        return tqdm.tqdm(files)
    except AttributeError:
        return tqdm(files)

"""


def _files(imports: str, report: str = "1", last: str = "1", more: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (imports, more, report, last)}


EXAMPLES = (
    bad("a bar, for an option", _files(_TQDM_IMPORT, "list(tqdm.tqdm([1]))"), "train.py:13 warning"),
    bad("a bar, in every run", _files(_TQDM_IMPORT, "1", "tqdm.tqdm([1])"), "train.py:14 error"),
    bad("a bar of tqdm.auto, in a loop", _files("from tqdm.auto import tqdm", last="[x for x in tqdm.tqdm([1])]"),
        "train.py:14 warning"),
    bad("a date", _files("from datetime import datetime", last="datetime.datetime.now()"), "train.py:14 error"),
    bad("another class of the module", _files("from datetime import datetime as dt", last="dt.timedelta(hours=1)"),
        "train.py:14 error"),
    bad("a function", _files("from time import time", last="time.time()"), "train.py:14 error"),
    bad("another function of the module", _files("from time import time", last="time.sleep(1)"), "train.py:14 error"),
    bad("imported in the function", _files("", "glob.glob('*')", more="\ndef main(args):\n    from glob import glob\n"
        "\n    return glob.glob('*')\n\n"), "train.py:9 warning"),
    good("the class alone", _files(_TQDM_IMPORT, "list(tqdm([1]))", "tqdm.write('x')")),
    good("the module", _files("import tqdm", last="tqdm.tqdm([1])")),
    good("the module as well", _files(f"import tqdm\n{_TQDM_IMPORT}", last="tqdm.tqdm([1])")),
    good("the module in one function", _files("from datetime import datetime", more="\ndef now():\n"
         "    import datetime\n\n    return datetime.datetime.now()\n\n")),
    good("a parameter of that name", _files("from time import time", more="\ndef wait(time):\n    time.sleep(1)\n\n")),
    good("the time of a date", _files("from datetime import datetime", last="datetime.now().date()")),
    good("the exception is taken", _files(_TQDM_IMPORT, more=_TRIED)),
    good("a library of its own", _files("from kit import kit", last="kit.kit()")),
)  # fmt: skip
