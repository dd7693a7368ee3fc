"""How one program writes things: imports, the rank, the tests on it. Drawn once for each program."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

# Import lines and what stands before the name of an operation.
_IMPORTS = (
    (("import torch", "import torch.distributed as dist"), "dist."),
    (("import torch", "from torch import distributed as dist"), "dist."),
    (("import torch", "import torch.distributed"), "torch.distributed."),
    (("import torch",), "torch.distributed."),
    (("import torch", "import torch.distributed as td"), "td."),
    (("import torch", "import deepspeed.comm as dist"), "dist."),
    (("import torch", "from deepspeed import comm as dist"), "dist."),
    (("import torch",), ""),  # from torch.distributed import the names that are used
)
# How the program learns its rank: a line that binds it, and the expression. An empty line: nothing to bind.
_RANKS = (
    ("", "{op}get_rank()"),
    ("rank = {op}get_rank()", "rank"),
    ("rank = int(os.environ['RANK'])", "rank"),
    ("rank = int(os.environ.get('RANK', 0))", "rank"),
    ("local_rank = int(os.environ['LOCAL_RANK'])", "local_rank"),
    ("rank = int(os.getenv('RANK'))", "rank"),
    ("", "args.rank"),
    ("", "args.local_rank"),
    ("rank = {op}get_rank() if {op}is_initialized() else 0", "rank"),
)
_MAIN = (
    "{r} == 0",
    "{r} == 0",
    "{r} == 0",
    "not {r}",
    "{r} < 1",
    "{r} in (0,)",
    "{r} in [-1, 0]",
    "0 == {r}",
    "{r} <= 0",
)
_OTHERS = ("{r} != 0", "{r} != 0", "{r} > 0", "{r}", "{r} >= 1", "not {r} == 0", "{r} not in (-1, 0)")
_SOME = ("{r} == 1", "{r} == {world} - 1", "1 == {r}")
_SETS = ("{r} < 2", "{r} in (0, 1)", "{r} % 2 == 0")
_UNIFORM = ("{op}is_initialized()", "{op}get_world_size() > 1", "{r} >= 0", "{r} != -1")
_DATA = {
    "nan": ("torch.isnan(loss)", "not torch.isfinite(loss)", "math.isnan(loss.item())", "torch.isnan(loss).item()"),
    "empty": ("len(batch) == 0", "not len(batch)"),
    "mask": ("batch['mask'].sum() == 0", "not batch['mask'].any()"),
    "labels": ("batch.get('labels') is None",),
    "clock": ("time.time() - start > args.budget",),
    "random": ("random.random() < 0.5",),
}
FLAG_NAMES = ("verbose", "do_eval", "use_ema", "save_best", "debug", "resume")


@dataclass
class Style:
    """The habits of one program. ``shape``: ``function`` | ``module`` | ``class``."""

    rng: Random
    shape: str = "function"
    imports: tuple[str, ...] = ()
    prefix: str = ""
    accelerate: bool = False
    binding: str = ""
    rank: str = ""
    alias: str = ""
    takes: tuple[str, ...] = ("args", "model", "loader")
    used: set[str] = field(default_factory=set)
    flags: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)

    def op(self, name: str) -> str:
        """An operation or question of torch.distributed, by the imports of the program."""
        if not self.prefix:
            self.used.add(name)
        return f"{self.prefix}{name}"

    def pick(self, options: tuple[str, ...] | list[str]) -> str:
        return self.rng.choice(options)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def flag(self) -> str:
        """A flag of the run: unknown, and the same on every rank. At most three in one program."""
        if len(self.flags) < 3 and (not self.flags or self.maybe(0.4)):
            rest = [f for f in FLAG_NAMES if f not in self.flags]
            self.flags.append(self.pick(rest))
        return f"args.{self.pick(self.flags)}"

    def _fill(self, pattern: str) -> str:
        world = self.op("get_world_size") + "()" if "{world}" in pattern else ""
        op = ""
        if "{op}" in pattern:
            name = pattern.split("{op}")[1].split("(")[0]
            op = self.op(name)[: -len(name)]
        return pattern.format(r=self.rank, world=world, op=op)

    def main(self) -> str:
        """A test that rank 0 passes."""
        if self.accelerate:
            return self.pick(("accelerator.is_main_process", "accelerator.process_index == 0"))
        if self.alias and self.maybe(0.6):
            return self.alias
        if self.maybe(0.06):
            self.tags.add("walrus")
            return f"(me := {self.op('get_rank')}()) == 0"
        return self._fill(self.pick(_MAIN))

    def others(self) -> str:
        """A test that all ranks but 0 pass."""
        if self.accelerate:
            return self.pick(("not accelerator.is_main_process", "accelerator.process_index != 0"))
        if self.alias and self.maybe(0.6):
            return f"not {self.alias}"
        return self._fill(self.pick(_OTHERS))

    def some(self) -> str:
        """A test that one other rank passes."""
        return "accelerator.process_index == 1" if self.accelerate else self._fill(self.pick(_SOME))

    def unknown_set(self) -> str:
        """A test that a set of ranks passes, which the file does not tell."""
        self.tags.add("set")
        return "accelerator.process_index < 2" if self.accelerate else self._fill(self.pick(_SETS))

    def uniform(self) -> str:
        """A test with one answer on all ranks."""
        if self.accelerate or self.maybe(0.7):
            return self.flag() if self.maybe(0.85) else f"not {self.flag()}"
        return self._fill(self.pick(_UNIFORM))

    def data(self) -> tuple[str, str]:
        """A test of this rank's data: the fact and the expression."""
        fact = self.pick(["nan", "nan", "nan", "empty", "mask", "labels", "clock", "random"])
        self.tags.add(f"data {fact}")
        return fact, self.pick(_DATA[fact])


def draw(rng: Random) -> Style:
    """The habits of a new program."""
    style = Style(rng, shape=rng.choice(("function", "function", "function", "module", "class")))
    if rng.random() < 0.12:
        style.accelerate = True
        style.imports = ("import torch", "from accelerate import Accelerator")
        style.rank = "accelerator.process_index"
        style.prefix = "accelerator."
        return style
    style.imports, style.prefix = rng.choice(_IMPORTS)
    choice = rng.random()
    if style.shape == "class" and choice < 0.5:
        style.rank = "self.rank"
    elif style.shape == "function" and choice < 0.2:
        style.rank = rng.choice(("rank", "local_rank"))
        style.takes = (*style.takes, style.rank)
    else:
        style.binding, style.rank = rng.choice(_RANKS)
        op = style.op("get_rank")[: -len("get_rank")] if "{op}" in style.binding + style.rank else ""
        if "is_initialized" in style.binding:
            style.op("is_initialized")
        style.binding, style.rank = style.binding.format(op=op), style.rank.format(op=op)
    if rng.random() < 0.3:
        style.alias = rng.choice(("is_main", "main_process", "is_lead", "master"))
    return style
