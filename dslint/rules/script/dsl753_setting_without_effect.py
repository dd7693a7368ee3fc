"""The script reads a setting of its configuration, and nobody makes use of the value.

**What.** `cfg["data"].get("decode_one_clip", True)` is kept in a variable that no code reads, or handed to a function
that has the parameter and never reads it, through as many calls and fields as there are: `init_data(..., log_dir=x)`,
which gives it to `make_dataset(..., log_dir=None)`, where it ends.

**Why it hurts.** The configuration states a setting that the run does not have: how data are loaded, decoded or
logged, what is saved, with which rate. Nothing is refused, and a sweep over the setting repeats one run.

**Fix.** Use the value where it belongs, or take the setting out of the code and the configuration.

**When it stays quiet.** Some code of the run reads the setting and uses it; the section is unpacked (`**cfg.data`);
the value goes to code that nobody can read, to functions with decorators of their own, stubs, `**kwargs` that somebody
looks into, or fields that a library may read; another script of the project has the word. A note where the name of the
setting says nothing of training, data, evaluation or checkpoints.

**Evidence.** Python: an argument whose parameter no code reads changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.consumers import Consumers, Fate
from dslint.rules.names.settings import Setting, is_key, is_weighty, settings_read, unpacked_names
from dslint.rules.ranks.intent import says_several
from dslint.rules.ranks.otherscripts import texts_of_others
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL753",
    name="setting-without-effect",
    kind="script",
    severity=Severity.WARNING,
    summary="a setting of a configuration is read, and its value reaches nobody who uses it",
    markers=(r"(?i)cfg|conf|args|opt|hparams|settings", r"torch|accelerat|deepspeed|transformers|lightning"),
    references=("https://docs.python.org/3/reference/expressions.html#calls",),
    depends_on_run=True,
    no_experiment="nothing uses the value: there is nothing to run",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first read of each setting that nobody uses."""
    modules = run.machine.program.modules()
    if not says_several(run, modules):
        return
    unpacked, uses = unpacked_names(modules), Consumers(run)
    by_key: dict[str, list[Setting]] = {}
    for setting in (setting for module in modules for setting in settings_read(module)):
        by_key.setdefault(setting.key, []).append(setting)
    unused = []
    for key, settings in by_key.items():
        if is_key(key) and not any(last_name(setting.base) in unpacked for setting in settings):
            reads = [*uses.reads_of_field(key), *uses.reads_of_item(key)]
            fate = uses.fate([*((s.module, s.node) for s in settings), *reads])
            if not fate.is_used and fate.ends and not fate.is_shown:
                unused.append((settings[0], fate))
    others = list(texts_of_others(run).values()) if unused else []
    for setting, fate in unused:
        if not any(re.search(rf"\b{setting.key}\b", text) for text in others):
            yield _finding(run, setting, fate)


def _finding(run: RunQuery, setting: Setting, fate: Fate) -> Finding:
    _, node, how = fate.ends[0]
    if how == "never read" or isinstance(node, ast.Call | ast.If):
        ends = "only prints it" if how != "never read" else f"keeps it in `{ast.unparse(node)}`, which nobody reads"
        said = f"the script reads `{setting.key}` and {ends}: whoever sets it changes nothing"
    else:
        said = f"`{setting.key}` is read and goes nowhere: {how}, so that whoever sets it changes nothing"
    return run.finding(
        META,
        setting.module,
        setting.node,
        said,
        hint=f"Use `{setting.key}` where it belongs, or take it out of the configuration",
        related=tuple(home.location(place, what) for home, place, what in fate.ends[:3]),
        severity=Severity.WARNING if is_weighty(setting.key) else Severity.INFO,
        facts={"setting": setting.key},
    )


_TRAIN = """\
import sys

import torch
import torch.distributed as dist
import yaml
from data import make_loader
from torch.nn.parallel import DistributedDataParallel


def main(config):
    dist.init_process_group("gloo")
    cfg_data = config.get("data")
    lr = config["optim"]["lr"]
%s
    loader = make_loader(cfg_data.get("path"), %s)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(yaml.safe_load(open(sys.argv[1])))
"""
_DATA = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler


def make_loader(path, workers=4, pin_mem=True%s):
    items = torch.load(path)
    return _loader(items, workers, %s)


def _loader(items, workers, pin_mem=True, log_dir=None):
    sampler = DistributedSampler(items)
    return DataLoader(items, batch_size=8, sampler=sampler, num_workers=workers, pin_memory=%s)
"""
_READ = '    pin_mem = cfg_data.get("pin_mem", False)'


def _files(read: str, given: str, *, more: str = "", on: str = "pin_mem", end: str = "True") -> dict[str, str]:
    return {"train.py": _TRAIN % (read, given), "data.py": _DATA % (more, on, end)}


EXAMPLES = (
    bad("the last of two functions does not use it", _files(_READ, "pin_mem=pin_mem"), "train.py:14 warning"),
    bad("by position", _files(_READ, "4, pin_mem"), "train.py:14"),
    bad("the function does not hand it on", _files(_READ, "pin_mem=pin_mem", on="True"), "train.py:14"),
    bad("a variable that nobody reads", _files(
        '    warmup = int(config["optim"]["warmup_steps"])', "4"), "train.py:14"),
    bad("it chooses what nobody uses", _files(
        '    seed_log = "log.csv" if cfg_data.get("log_seed", False) else None', "log_dir=seed_log",
        more=", log_dir=None", on="pin_mem, log_dir", end="pin_mem"), "train.py:14"),
    bad("the setting says nothing of training", _files('    color = config["color"]', "4"), "train.py:14 info"),
    good("somebody uses it", _files(_READ, "pin_mem=pin_mem", end="pin_mem")),
    good("the section is unpacked", _files(_READ, "**cfg_data")),
    good("a library gets it", _files(_READ, "torch.tensor(pin_mem)", end="pin_mem")),
    good("`**options` that somebody looks into", _files(
        _READ, "pin=pin_mem", more=", **options", on="options.get('pin')", end="pin_mem")),
    good("it decides over a branch", _files(_READ + "\n    if pin_mem:\n        torch.set_num_threads(1)", "4")),
    good("another script uses it", {
        **_files(_READ, "pin_mem=pin_mem"),
        "evaluate.py": "import yaml\n\nprint(yaml.safe_load(open('c.yaml'))['pin_mem'])\n"}),
)  # fmt: skip
