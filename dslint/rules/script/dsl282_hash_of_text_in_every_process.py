"""`hash()` of a text picks the rank, the bucket or the row: each process gets another number.

**What.** `hash(name) % n` (or `& mask`) in a program of several ranks, where `name` is a text, bytes or unknown.

**Why it hurts.** Python salts the hashes of texts and bytes in each process. The ranks do not agree on who owns an
item: some items belong to nobody and some to several. A row of an embedding table that is picked like this is another
row on each rank, and gradients of different items are averaged. A checkpoint is of no use to the next process. Nothing
fails.

**Fix.** A hash that is the same everywhere: `zlib.crc32(name.encode()) % n`, or `hashlib`.

**When it stays quiet.** Numbers; hashes that no `%` or `&` cuts; files that set `PYTHONHASHSEED`; programs without
several ranks. A large fixed number (`% 2**32`), as for a seed, and colours are an information, and only of what is a
text for certain.

**Evidence.** Two interpreters: the same four texts fall into other ones of 1024 buckets; with `PYTHONHASHSEED` or
`zlib.crc32` into the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.python.values import Const, PerRank, Tuple, Unknown, Value
from dslint.python.varies import ASSUMED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL282",
    name="hash-of-text-in-every-process",
    kind="script",
    severity=Severity.WARNING,
    summary="`hash()` of a text picks a rank, bucket or row, and each process gets another number",
    markers=(r"torch|accelerat|deepspeed|lightning|distributed",),
    references=("https://docs.python.org/3/reference/datamodel.html#object.__hash__",),
    depends_on_run=True,
)

_RANKS = ("starts-group", "wraps-model", "prepares", "makes-engine", "collective", "trainer")
_ASKS = re.compile(r"WORLD_SIZE|get_rank\(|process_index")
_NUMBERS = frozenset({"builtins.int", "builtins.float", "builtins.bool"})
_TEXTS = frozenset({"builtins.str", "builtins.bytes"})
_HARMLESS = re.compile(r"colou?r|cmap|palette|seed", re.I)
_LARGE = 1 << 16
_FIXED = (ast.BinOp, ast.operator, ast.Constant)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each hash of a text that is cut to a range."""
    if run.context.is_one_process or not (run.has(*_RANKS) or run.entries[0].module.search(_ASKS)):
        return
    seen: set[int] = set()
    for module, node, kind in _hashes(run):
        cut = _cut(module, node)
        if kind == "number" or cut is None or id(cut) in seen or "PYTHONHASHSEED" in module.code:
            continue
        is_harmless = _is_harmless(module, cut)
        if is_harmless and kind == "unknown":
            continue
        seen.add(id(cut))
        yield run.finding(
            META,
            module,
            cut,
            f"`{run.text(module, cut, 40)}` differs between processes: Python salts the hashes of texts",
            hint="Use a hash that is the same everywhere: `zlib.crc32(text.encode())`, or `hashlib`",
            severity=Severity.INFO if is_harmless else None,
            varies=0 if kind == "text" else ASSUMED,
        )


def _hashes(run: RunQuery) -> Iterator[tuple[Module, ast.AST, str]]:
    """Yield the hashes of the run, and those in data sets, whose code the loader calls."""
    for found in run.happenings("hashes"):
        yield found.event.module, found.event.node, _kind(found.event.arguments.get("obj"))
    for found in run.happenings("makes-loader"):
        for source in found.event.sources:
            for module, piece in reached(run.machine.program, source.code):
                for node in ast.walk(piece):
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
                        yield module, node, "unknown"


def _kind(value: Value | None) -> str:
    """Return what is hashed: `text`, `number`, or `unknown`."""
    kinds = set()
    for atom in value.atoms if value is not None else ():
        if isinstance(atom, Const):
            kinds.add("text" if isinstance(atom.value, str | bytes) else "number")
        elif isinstance(atom, PerRank):
            kinds.add("number")
        elif isinstance(atom, Tuple):
            parts = {_kind(item) for item in atom.items}
            kinds.add("text" if "text" in parts else "number" if parts == {"number"} else "unknown")
        elif isinstance(atom, Unknown) and atom.type:
            kinds.add("number" if atom.type in _NUMBERS else "text" if atom.type in _TEXTS else "unknown")
        else:
            kinds.add("unknown")
    return kinds.pop() if len(kinds) == 1 else "text" if "text" in kinds else "unknown"


def _cut(module: Module, node: ast.AST) -> ast.BinOp | None:
    """Return the `%` or `&` that cuts a hash to a range."""
    for found in module.nodes:
        if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Mod | ast.BitAnd):
            left = found.left
            while isinstance(left, ast.Call) and left is not node and len(left.args) == 1:
                left = left.args[0]
            if left is node:
                return found
    return None


def _is_harmless(module: Module, cut: ast.BinOp) -> bool:
    """A seed or a colour: another one in each process does no harm by itself."""
    right = cut.right
    if isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value >= _LARGE:
        return True
    if isinstance(right, ast.BinOp) and all(isinstance(n, _FIXED) for n in ast.walk(right)):
        return True
    return _HARMLESS.search(module.text(module.statement(cut))) is not None


_INFER = """\
import json
import zlib

import torch.distributed as dist


def owner(name, world):
    return %s


def documents(path, rank, world):
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            if owner(%s, world) == rank:
                yield row


def main():
    dist.init_process_group("nccl")
    for row in documents("rows.jsonl", dist.get_rank(), dist.get_world_size()):
        print(row)
    dist.barrier()


if __name__ == "__main__":
    main()
"""
_TABLE = """\
import torch
from torch.nn.parallel import DistributedDataParallel


class Speakers(torch.nn.Module):
    def __init__(self, rows: int):
        super().__init__()
        self.rows = rows
        self.table = torch.nn.Embedding(rows, 8)

    def forward(self, names: list[str]):
        at = [abs(hash(f"speaker {name}")) %% self.rows for name in names]
        return self.table(torch.tensor(at))


def main(names):
    model = DistributedDataParallel(Speakers(64))
    model(names).sum().backward()


if __name__ == "__main__":
    main(["a", "b"])
"""

_DATA = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def row_of(name, rows):
    return hash(name) % rows


class Corpus(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return row_of(self.items[index]["name"], 64)


def main(items):
    dist.init_process_group("nccl")
    data = Corpus(items)
    for batch in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        print(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main([])
"""

EXAMPLES = (
    bad("in a data set that the loader calls", {"train.py": _DATA}, at="train.py:6 warning"),
    bad("the owner of a document", {"infer.py": _INFER % ("hash(name) % world", 'row["id"]')}, at="infer.py:8 warning"),
    bad("the row of a table", {"train.py": _TABLE.replace("%%", "%")}, at="train.py:12 warning"),
    bad(
        "a text for certain, cut by a mask",
        {"infer.py": _INFER % ("hash(name) & (world - 1)", 'str(row["id"])')},
        at="infer.py:8 warning",
    ),
    bad(
        "a seed of a text",
        {"infer.py": _INFER % ("hash(name) % 2**32", 'str(row["id"])')},
        at="infer.py:8 info",
    ),
    good("a seed of what may be numbers", {"infer.py": _INFER % ("hash(name) % 2**32", 'row["id"]')}),
    good(
        "a hash that is the same everywhere", {"infer.py": _INFER % ("zlib.crc32(name.encode()) % world", 'row["id"]')}
    ),
    good("a number", {"infer.py": _INFER % ("hash(name) % world", 'int(row["id"])')}),
    good("equality inside of one process", {"infer.py": _INFER % ("hash(name) == hash('a')", 'row["id"]')}),
    good("one process", {"train.py": _TABLE.replace("%%", "%")}, world_size=1),
)
