"""**What.** A launch command, an accelerate YAML file or the script names a DeepSpeed or accelerate config that does
not exist: not from the folder of the launch file, not from any folder above it, not beside the script. Or it exists,
but not in the folder to which the launch file has changed with `cd`. So does any other argument of the command that is
the path of a JSON, YAML, TOML or Python file, while the project has one file that ends like it or has a name of its
own (`--cfg-path configs/old/a.yaml`, `--base`, `tools/train.py configs/a.py`), or one with another ending (`.yml` for
`.yaml`, `.jsn`); and `--config-name` of a script with
`hydra.main(config_path=...)` whose folder has no such file.

**Why it hurts.** The job waits in the queue, starts on every node, and stops. `accelerate launch` says
`FileNotFoundError` for its YAML file; transformers, accelerate and DeepSpeed take the unknown path for a base64 text
and stop with `ValueError: Expected a string path to an existing deepspeed config`.

**Fix.** Correct the path, or commit the file.

**When it stays quiet.** After `cd` to a folder that is not in this project or not certain, and when the script changes
the folder itself. For absolute paths, `~` and unknown variables; when another command of the launch file or the script
itself mentions the file and so may write, fetch or copy it; for presets of xtuner and ms-swift (`deepspeed_zero2`); and
when neither the script nor the folder of the file is in this project.

**Evidence.** transformers `HfTrainerDeepSpeedConfig.__init__`, accelerate `DeepSpeedPlugin.__post_init__` and
DeepSpeed `DeepSpeedConfig.__init__` open the path as it is, relative to the working directory.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.config import Named
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL443",
    name="config-path-missing",
    kind="plan",
    severity=Severity.WARNING,
    summary="A launch command names a config file that does not exist",
    references=("https://huggingface.co/docs/transformers/deepspeed",),
    depends_on_run=True,
    needs=("missing",),
)

_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
_RUN = "torchrun --nproc_per_node 8 train.py --output_dir out --deepspeed configs/zero2.json\n"

_PLAIN = "import sys\n\nprint(sys.argv)\n"
_HYDRA = """\
import hydra


@hydra.main(config_path="conf", config_name="base")
def main(cfg):
    print(cfg)


if __name__ == "__main__":
    main()
"""

EXAMPLES = (
    bad("the ending is misspelt", {
        "run.sh": _RUN.replace("zero2.json", "zero2.jsn"), "train.py": TRAINER, "configs/zero2.json": _CONFIG,
    }, "run.sh:1"),
    bad("another ending", {
        "run.sh": "torchrun train.py --cfg configs/base.yml\n", "train.py": _PLAIN, "configs/base.yaml": "lr: 1\n",
    }, "run.sh:1"),
    good("a file of data beside it", {
        "run.sh": "torchrun train.py --input configs/base.jsonl\n", "train.py": _PLAIN, "configs/base.json": "[]\n",
    }),
    bad("the file has another name", {
        "run.sh": _RUN.replace("zero2", "zero_2"),
        "train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }, "run.sh:1"),
    bad("another argument, in another folder", {
        "run.sh": "torchrun --nproc_per_node 8 train.py --cfg-path configs/old/llama_7b.yaml\n",
        "train.py": _PLAIN,
        "configs/new/llama_7b.yaml": "lr: 1\n",
    }, "run.sh:1 warning"),
    bad("an operand", {
        "run.sh": "torchrun --nproc_per_node 8 train.py llava/configs/llama.py\n",
        "train.py": _PLAIN,
        "videollava/configs/llama.py": "model = {}\n",
    }, "run.sh:1 warning"),
    bad("a config of Hydra", {
        "run.sh": "torchrun --nproc_per_node 8 train.py --config-name large\n",
        "train.py": _HYDRA,
        "conf/base.yaml": "lr: 1\n",
    }, "run.sh:1 warning"),
    good("a config of Hydra that is there", {
        "run.sh": "torchrun --nproc_per_node 8 train.py --config-name base\n",
        "train.py": _HYDRA,
        "conf/base.yaml": "lr: 1\n",
    }),
    good("an argument with a name that any file may have", {
        "run.sh": "torchrun --nproc_per_node 8 train.py --cfg-path data/old/config.yaml\n",
        "train.py": _PLAIN,
        "configs/new/config.yaml": "lr: 1\n",
    }),
    good("what the script writes", {
        "run.sh": "torchrun --nproc_per_node 8 train.py --output runs/llama_7b.yaml\n",
        "train.py": _PLAIN,
        "configs/llama_7b.yaml": "lr: 1\n",
    }),
    bad("left behind by cd", {
        "scripts/run.sh": f"cd \"$(dirname \"$0\")/../src\"\n{_RUN}",
        "src/train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }, "scripts/run.sh:2"),
    bad("the YAML file of accelerate launch", {
        "run.sh": "cd src\naccelerate launch --config_file configs/multi.yaml train.py --output_dir out\n",
        "src/train.py": TRAINER,
        "configs/multi.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\n",
    }, "run.sh:2"),
    good("the folder after cd is named from there", {
        "scripts/run.sh": f"cd \"$(dirname \"$0\")/../src\"\n{_RUN.replace('configs', '../configs')}",
        "src/train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    good("back again", {
        "run.sh": f"cd src\nmake\ncd ..\n{_RUN}(cd src && make)\n{_RUN}pushd src\npopd\n{_RUN}",
        "src/Makefile": "all:\n",
        "train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    good("the launch script brings it along", {
        "run.sh": f"cp -r configs src\ncd src\n{_RUN}",
        "src/train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    good("beside the script", {
        "run.sh": f"cd src\n{_RUN.replace('train.py', 'tools/train.py')}",
        "src/tools/train.py": TRAINER,
        "src/tools/configs/zero2.json": _CONFIG,
        "configs/zero2.json": _CONFIG,
    }),
    good("the script changes the folder", {
        "run.sh": f"cd src\n{_RUN}",
        "src/train.py": "import os\n\nos.chdir(os.path.dirname(__file__) + '/..')\n" + TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    bad("documentation that names the folder of another task", {
        "README.md": "```bash\n" + _RUN.replace("configs", "configs/sft") + "```\n",
        "train.py": TRAINER, "configs/dpo/zero2.json": _CONFIG,
    }, "README.md:2 warning"),
    good("the file is there", {"run.sh": _RUN, "train.py": TRAINER, "configs/zero2.json": _CONFIG}),
    good("the command runs from the folder above", {
        "scripts/run.sh": _RUN,
        "train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    bad("the YAML file beside a tool that writes another kind of file", {
        "run.sh": "python prepare.py\naccelerate launch --config_file configs/zero3.yaml train.py --output_dir out\n",
        "prepare.py": "import json\n\njson.dump({}, open('data.json', 'w'))\n",
        "train.py": TRAINER,
        "configs/zero2.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\n",
    }, "run.sh:2"),
    bad("documentation that names no file of a folder that is here", {
        "README.md": "```bash\n" + _RUN.replace("zero2", "zero3_wo_loss_scale") + "```\n",
        "train.py": TRAINER, "configs/zero3_offload.json": _CONFIG,
    }, "README.md:2 warning"),
    good("documentation that names a folder of its reader", {
        "README.md": "```bash\n" + _RUN.replace("configs", "my_configs") + "```\n",
        "train.py": TRAINER, "configs/zero2.json": _CONFIG,
    }),
    good("a tool writes the config", {
        "run.sh": "python prepare.py\n" + _RUN.replace("zero2", "zero3"),
        "prepare.py": "import json\n\njson.dump({}, open('zero3' + '.json', 'w'))\n",
        "train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }),
    good("the launch script writes the config", {
        "run.sh": f"cat > configs/zero3.json <<'EOF'\n{_CONFIG}EOF\n" + _RUN.replace("zero2", "zero3"),
        "train.py": TRAINER,
    }),
    bad("a capital letter", {
        "run.sh": _RUN.replace("zero2", "Zero2"), "train.py": TRAINER, "configs/zero2.json": _CONFIG,
    }, "run.sh:1 warning"),
    bad("a capital letter in documentation", {
        "README.md": f"```bash\n{_RUN.replace('zero2', 'Zero2')}```\n", "train.py": TRAINER,
        "configs/zero2.json": _CONFIG,
    }, "README.md:2 warning"),
    good("the cluster has the config", {"run.sh": _RUN.replace("configs", "/etc/ds"), "train.py": TRAINER}),
)  # fmt: skip


def _hint(named: Named) -> str:
    if named.left is not None:
        return f"Write `{named.left.from_folder}`"
    return f"Did you mean `{named.meant}`?" if named.meant else "Correct the path or add the file"


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report every config that is named and nowhere."""
    for named in plan.missing:
        command = plan.command.location
        is_elsewhere = named.location.path != command.path
        is_ours = named.has_siblings or named.is_moved(command.path)
        left = named.left
        where = "where the command starts" if named.is_start else "beside or above the launch file or script"
        if left is not None:
            where = f"in `{left.folder or '.'}`, the folder after `cd`"
        yield META.finding(
            named.location,
            f"`{named.text}` does not exist {where}: the run stops at start-up",
            hint=_hint(named),
            related=(
                *((command.labelled("the command that starts this run"),) if is_elsewhere else ()),
                *((left.place,) if left is not None and left.place is not None else ()),
            ),
            severity=Severity.INFO if plan.command.in_docs and not is_ours else None,
            assumptions=() if named.is_start else (assumed("files-are-here", named.text),),
            facts={"path": named.text, "consumer": plan.consumer.get_or("unknown")},
        )
