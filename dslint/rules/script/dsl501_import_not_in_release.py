"""An import asks a library for a module or a name that a release in use does not have.

**What.** `from torch._six import inf`, `from transformers import Glm4vForConditionalGeneration`, `from peft import
prepare_model_for_int8_training`: the name was removed, moved, or came later than the release that the project installs.

**Why it hurts.** `ModuleNotFoundError` or `ImportError` on every rank, after the queue and the container. Where nobody
pins the release, code that ran last month stops with a fresh install.

**Fix.** Import it from its new place, or pin a release that has it. The fix writes the new place where every release
that the project allows has it.

**When it stays quiet.** A handler of the error is around the import, or a test of the release, in any spelling,
keeps it from releases that lack the name. Imports under `TYPE_CHECKING`. A package of the project itself that has the
name of a library. Modules whose names are made while they are imported. An error means that no release that the project
allows has the name; a warning, that a fresh install takes a release without it; an information, that the oldest release
allowed lacks it.

**Evidence.** The surface of the libraries by release, read from their wheels (docs/versions.md); `tests/names/`
compares it with imports that were really run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.gonenames import findings

META = RuleMeta(
    code="DSL501",
    name="import-not-in-release",
    kind="script",
    severity=Severity.WARNING,
    summary="an import of a module or name that the release of the library in use does not have",
    fix="safe",
    markers=MARKERS,
    references=(
        "https://github.com/microsoft/DeepSpeed/issues/2845",
        "https://github.com/huggingface/peft/issues/1300",
        "https://arxiv.org/abs/2512.20345",
    ),
    depends_on_run=True,
    no_experiment="an import fails before any rank meets another; the imports that were run are in tests/names",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each import that a release which the project allows refuses."""
    imports = [use for use in view.found.uses if use.kind != "attribute"]
    yield from findings(META, view, imports)


_SIX = "from torch._six import inf\n\nprint(inf)\n"
EXAMPLES = (
    bad(
        "A module that torch 2.0 has removed",
        {"requirements.txt": "torch==2.1.2\n", "train.py": _SIX},
        "train.py:1 error",
    ),
    bad("A range that reaches it", {"requirements.txt": "torch>=1.13\n", "train.py": _SIX}, "train.py:1 warning"),
    bad("Nobody says which release is installed", {"train.py": _SIX}, "train.py:1 warning"),
    bad(
        "A model that came later than the pin",
        {
            "requirements.txt": "transformers==4.51.3\n",
            "train.py": "from transformers import AutoProcessor, Glm4vForConditionalGeneration\n",
        },
        "train.py:1 error",
    ),
    bad(
        "A Trainer that came later than the pin",
        {"requirements.txt": "trl==0.13.0\n", "train.py": "from trl import GRPOConfig, GRPOTrainer\n"},
        "train.py:1 error",
    ),
    bad(
        "A helper that peft has removed",
        {
            "requirements.txt": "peft>=0.6\n",
            "train.py": "from peft import prepare_model_for_int8_training as prepare\n",
        },
        "train.py:1 warning",
    ),
    bad(
        "The handler of another error",
        {
            "requirements.txt": "peft==0.17.1\n",
            "train.py": """\
try:
    from peft import prepare_model_for_int8_training
except ModuleNotFoundError:
    prepare_model_for_int8_training = None
""",
        },
        "train.py:2 error",
    ),
    bad(
        "A name that has moved",
        {"requirements.txt": "peft==0.17.1\n", "train.py": "from peft.mapping import get_peft_model\n"},
        "train.py:1 error",
        {"requirements.txt": "peft==0.17.1\n", "train.py": "from peft import get_peft_model\n"},
    ),
    bad(
        "A name to which the module answers with an error",
        {"requirements.txt": "pydantic>=2\n", "train.py": "from pydantic import BaseSettings\n"},
        "train.py:1 error",
    ),
    good(
        "The release that has the settings",
        {"requirements.txt": "pydantic<2\n", "train.py": "from pydantic import BaseSettings\n"},
    ),
    good(
        "The name of a library alone is no word for its old releases",
        {
            "requirements.txt": "torch\ntransformers\n",
            "environment.yml": "dependencies:\n  - pip:\n    - transformers\n",
            "train.py": "from transformers import LlamaForCausalLM\n\nprint(LlamaForCausalLM)\n",
        },
    ),
    good("The pinned release has it", {"requirements.txt": "torch==1.13.1\n", "train.py": _SIX}),
    good(
        "A handler takes the other place",
        {
            "requirements.txt": "torch>=1.13\n",
            "train.py": "try:\n    from torch._six import inf\nexcept ImportError:\n    from torch import inf\n",
        },
    ),
    good(
        "A test of the release, computed from its numbers",
        {
            "requirements.txt": "torch>=1.13\n",
            "train.py": """\
import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 0):
    from torch._six import inf
else:
    from torch import inf
""",
        },
    ),
    good(
        "A test with a helper, in a function",
        {
            "requirements.txt": "transformers>=4.40\n",
            "train.py": """\
from transformers.utils import is_torch_available
from transformers.utils.versions import require_version


def build():
    require_version("transformers>=4.53")
    from transformers import Glm4vForConditionalGeneration

    return Glm4vForConditionalGeneration
""",
        },
    ),
    good(
        "For a type checker alone",
        {
            "requirements.txt": "torch==2.1.2\n",
            "train.py": """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._six import inf
""",
        },
    ),
    good(
        "A package of the project that has the name of a library",
        {
            "requirements.txt": "peft==0.17.1\ntransformers==4.56.2\n",
            "peft/__init__.py": "from .utils import prepare_model_for_int8_training\n",
            "peft/utils.py": "def prepare_model_for_int8_training(model):\n    return model\n",
            "train.py": "from peft import prepare_model_for_int8_training\n",
        },
    ),
)
