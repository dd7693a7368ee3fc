"""Whether a script joins a process group on its main path, with variables that only a launcher sets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dslint.core.source import Location, SourceFile
from dslint.model.plan.pyscript import PyScript, read_script, text_of

_INIT = ("torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group")
# The script starts processes, sets the variables itself, or uses a library that finds them elsewhere (MPI, Slurm).
_FINDS_OUT = re.compile(
    r"spawn|multiprocessing|Process\(|subprocess|os\.execv|notebook_launcher|elastic_launch|deepspeed|mpi4py|SLURM_|OMPI_"
    r"|lightning|\bray\b|environ\.setdefault|environ\.update|putenv|load_dotenv"
    r"|environ\[[^\]]*\]\s*=[^=]|MASTER_ADDR"
)
_DEPTH = 5


def joins_group(source: SourceFile) -> Location | None:
    """The call of ``init_process_group`` that every start of the script reaches, with ``RANK`` and its like unset.

    ``None`` when it may not be reached: behind a condition, a loop, a ``try`` or an early return; when the call itself
    says rank and size; and when the script may find out what it is in another way.
    """
    if "init_process_group" not in source.text or _FINDS_OUT.search(source.text) or source.path.endswith(".ipynb"):
        return None
    script = read_script(source)
    if script.tree is None:
        return None
    functions = {n.name: n for n in script.tree.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
    for call in reached_calls(script.tree.body, functions, 0):
        if script.qualified(call.func) in _INIT:
            return script.location(call) if _asks_environment(script, call) else None
    return None


def reached_calls(body: Sequence[ast.stmt], functions: dict[str, ast.FunctionDef], depth: int) -> Iterator[ast.Call]:
    """The calls that run in any case, in their order, through functions of the file."""
    for statement in body:
        if (isinstance(statement, ast.If) and _is_main(statement.test)) or isinstance(statement, ast.With):
            yield from reached_calls(statement.body, functions, depth)
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and statement.value is not None:
            for call in _calls(statement.value):
                inner = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
                if inner is not None and depth < _DEPTH:
                    yield from reached_calls(inner.body, functions, depth + 1)
                yield call
        elif _may_leave(statement):
            return


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    """The call that a statement is about, and those among its arguments."""
    if isinstance(value, ast.Call):
        for argument in (*value.args, *(keyword.value for keyword in value.keywords)):
            yield from _calls(argument)
        yield value


def _is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )


def _may_leave(statement: ast.stmt) -> bool:
    """A definition leaves nothing; other statements may hold a ``return`` or an exit."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return False
    leaves = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    exits = ("exit", "_exit", "quit")
    for node in ast.walk(statement):
        if isinstance(node, leaves):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in exits:
                return True
    return False


def _asks_environment(script: PyScript, call: ast.Call) -> bool:
    """``init_method`` is ``env://``, and nobody says the rank."""
    names = {keyword.arg for keyword in call.keywords}
    if names & {"rank", "world_size", "store", None} or len(call.args) > 2:
        return False
    method = next((k.value for k in call.keywords if k.arg == "init_method"), None)
    method = method or (call.args[1] if len(call.args) > 1 else None)
    return method is None or text_of(script.resolved(method)) == "env://"
