"""Which keyword arguments the classes around the Trainer take by release, and the generator of that table."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import zipfile
from pathlib import Path

import pytest
from script_helpers import findings

from dslint.core.finding import Severity
from dslint.core.fix import Safety
from dslint.model.context import Context, VersionFact
from dslint.model.trainerargs import (
    INSTEAD,
    RENAMED,
    Releases,
    changing_names,
    class_of,
    deprecated_since,
    in_newest,
    predecessor,
    since,
    successor,
    taken,
    until,
)
from dslint.rules.script import dsl264_removed_training_argument as dsl264

ROOT = Path(__file__).parents[2]
ARGUMENTS = ("transformers", "TrainingArguments")
SFT = ("trl", "SFTConfig")


def releases(transformers: str = "", trl: str = "") -> Releases:
    return Releases(VersionFact(transformers), VersionFact(trl))


@pytest.mark.parametrize(
    ("name", "version", "answer"),
    [
        ("evaluation_strategy", "==4.37.2", "yes"),
        ("evaluation_strategy", "==4.50.3", "yes"),
        ("evaluation_strategy", "==4.51.0", "no"),
        ("evaluation_strategy", ">=4.51,<6", "no"),
        ("evaluation_strategy", ">=4.37", "maybe"),
        ("evaluation_strategy", "", "maybe"),
        ("eval_strategy", "==4.37.2", "no"),
        ("eval_strategy", "==4.41.0", "yes"),
        ("warmup_ratio", "==5.14.1", "yes"),
        ("warmup_ratio", "==5.15.0", "no"),
        ("tp_size", "==4.51.3", "yes"),
        ("tp_size", "==4.49.0", "no"),
        ("tp_size", "==4.57.6", "no"),
        ("logging_dir", "==3.5.1", "yes"),
        ("output_dir", "==4.37.2", ""),
        ("no_such_thing", "==4.37.2", ""),
    ],
)
def test_which_release_takes_an_argument(name: str, version: str, answer: str) -> None:
    assert taken(ARGUMENTS, name, releases(version)) == answer


@pytest.mark.parametrize(
    ("name", "transformers", "trl", "answer"),
    [
        # The release of transformers alone decides: trl never had the name.
        ("evaluation_strategy", "==4.51.0", "", "no"),
        ("evaluation_strategy", "==4.40.0", "==0.9.2", "yes"),
        ("max_seq_length", "", "==0.12.0", "yes"),
        ("max_seq_length", "==4.57.1", "==0.24.0", "no"),
        ("max_seq_length", "==4.57.1", "", "maybe"),
        # trl states these fields anew at some release; the base class has them all along.
        ("learning_rate", "", "==0.11.0", "yes"),
        ("bf16", "==4.46.3", "==0.12.0", "yes"),
    ],
)
def test_a_config_of_trl_takes_what_transformers_takes(name: str, transformers: str, trl: str, answer: str) -> None:
    assert taken(SFT, name, releases(transformers, trl)) == answer


def test_a_class_that_is_gone_or_takes_anything_decides_nothing() -> None:
    assert taken(("trl", "ORPOTrainer"), "tokenizer", releases("==4.57.1", "==0.26.2")) == "maybe"  # ``**kwargs``
    assert taken(("trl", "ORPOConfig"), "evaluation_strategy", releases("==5.0.0", "==1.0.0")) == "maybe"


def test_names_and_their_changes() -> None:
    assert until(ARGUMENTS, "evaluation_strategy") == ("transformers", "4.51.0")
    assert until(ARGUMENTS, "eval_strategy") == ("", "")
    assert since(ARGUMENTS, "eval_strategy") == ("transformers", "4.41.0")
    assert deprecated_since(ARGUMENTS, "evaluation_strategy") == "4.41.0"
    assert deprecated_since(ARGUMENTS, "gradient_checkpointing") == ""  # its help says the word about something else
    assert (successor(ARGUMENTS, "no_cuda"), predecessor(ARGUMENTS, "eval_strategy")) == (
        "use_cpu",
        "evaluation_strategy",
    )
    assert successor(("trl", "SFTTrainer"), "tokenizer") == "processing_class"
    assert in_newest(ARGUMENTS, "evaluation_strategy", releases()) == "no"
    assert in_newest(ARGUMENTS, "evaluation_strategy", releases("<4.51")) == "yes"


def test_classes_by_their_qualified_names() -> None:
    assert class_of("transformers.training_args.TrainingArguments") == ARGUMENTS
    assert class_of("trl.trainer.sft_config.SFTConfig") == SFT
    assert class_of("trl.experimental.orpo.ORPOConfig") is None
    assert class_of("lightning.Trainer") is None
    assert class_of("transformers.AutoModel") is None


def test_every_rename_leads_to_a_name_that_some_release_takes() -> None:
    names = json.loads((ROOT / "schemas" / "trainer_arguments.json").read_text("utf-8"))
    known = {n for lib in ("transformers", "trl") for c in names[lib]["classes"].values() for n in c["names"]}
    known |= {n for c in names["transformers"]["classes"].values() for n in c["always"]}
    for renames in RENAMED.values():
        assert set(renames) <= changing_names()
        assert set(renames.values()) <= known
    assert set(INSTEAD) <= changing_names()


# -- the rule -----------------------------------------------------------------------------------------------------

_OLD = "from transformers import TrainingArguments\nargs = TrainingArguments('o', evaluation_strategy='no')\n"


def context(**stated: str) -> Context:
    return Context(libraries={name: VersionFact(text) for name, text in stated.items()})


@pytest.mark.parametrize(
    ("version", "severity"),
    [("==5.0.0", Severity.ERROR), (">=4.51", Severity.ERROR), (">=4.37", Severity.WARNING), ("", Severity.INFO)],
)
def test_the_severity_follows_what_the_project_states(version: str, severity: Severity) -> None:
    (found,) = findings(dsl264, _OLD, context(transformers=version) if version else Context())
    assert found.severity is severity
    assert found.fact("instead") == "eval_strategy"


def test_a_deprecated_name_is_an_information() -> None:
    (found,) = findings(dsl264, _OLD, context(transformers="==4.45.2"))
    assert found.severity is Severity.INFO
    assert "deprecates" in found.message
    assert findings(dsl264, _OLD, context(transformers="==4.37.2")) == []
    assert findings(dsl264, _OLD, context(transformers="<4.41")) == []


@pytest.mark.parametrize(
    ("value", "has_fix"), [("0.03", True), ("1.0", False), ("0", False), ("ratio", False), ("2", False)]
)
def test_a_ratio_is_renamed_only_where_it_stays_one(value: str, has_fix: bool) -> None:
    code = f"from transformers import TrainingArguments\nargs = TrainingArguments('o', warmup_ratio={value})\n"
    (found,) = findings(dsl264, code, context(transformers="==5.23.0"))
    assert (found.fix is not None) is has_fix


def test_no_fix_beside_the_new_name_and_an_unsafe_one_where_the_release_is_open() -> None:
    both = _OLD.replace("='no'", "='no', eval_strategy='no'")
    (found,) = findings(dsl264, both, context(transformers="==5.23.0"))
    assert found.fix is None
    (found,) = findings(dsl264, _OLD, context(transformers=">=4.37"))
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    "code",
    [
        # The class makes itself: what it hands on is not seen.
        "from transformers import Trainer\nclass T(Trainer):\n    def __init__(self, tokenizer):\n        self.t = 1\n"
        "T(tokenizer=t)\n",
        "from transformers import Trainer\nclass M:\n    pass\nM(tokenizer=t)\n",
        "from transformers import Trainer\nfrom mine import Base\nclass T(Base, Trainer):\n    pass\nT(tokenizer=t)\n",
        "from transformers import AutoTokenizer as Trainer\nTrainer(tokenizer=t)\n",
    ],
)
def test_quiet_where_another_class_takes_the_argument(code: str) -> None:
    assert findings(dsl264, code, context(transformers="==5.23.0")) == []


_READ = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "parser = HfArgumentParser((ModelArguments, TrainingArguments))\n"
    "model_args, training_args = parser.parse_args_into_dataclasses()\n"
)


@pytest.mark.parametrize(
    "imports",
    [
        "import flax",
        "from flax.training import train_state",
        "import tensorflow as tf",
        "from transformers import TFAutoModel",
        "from transformers.modeling_flax_outputs import FlaxBaseModelOutput",
    ],
)
def test_quiet_in_a_script_of_a_framework_that_no_such_release_runs(imports: str) -> None:
    code = "from transformers import TrainingArguments\nargs = TrainingArguments('out', logging_dir='runs')\n"
    assert findings(dsl264, code, context(transformers=">=4.34"))
    assert findings(dsl264, f"{imports}\n{code}", context(transformers=">=4.34")) == []


def test_reading_a_removed_argument() -> None:
    code = _READ + "print(training_args.overwrite_output_dir)\n"
    (found,) = findings(dsl264, code, context(transformers="==5.0.0"))
    assert found.severity is Severity.ERROR
    assert "AttributeError" in found.message
    assert findings(dsl264, code, context(transformers="==4.57.6")) == []
    assert findings(dsl264, code, Context()) == []
    (found,) = findings(dsl264, code + "print(training_args.no_cuda)\n", context(transformers="==5.0.0"))
    assert len(found.related) == 1


@pytest.mark.parametrize(
    "code",
    [
        _READ + "training_args.overwrite_output_dir = True\nprint(training_args.overwrite_output_dir)\n",
        _READ + "print(model_args.overwrite_output_dir)\n",
        _READ + "print(training_args.output_dir)\n",
        _READ + "if hasattr(training_args, 'no_cuda'):\n    print(training_args.no_cuda)\n",
        _READ + "print(hasattr(training_args, 'past_index') and training_args.past_index >= 0)\n",
        _READ + "try:\n    print(training_args.no_cuda)\nexcept Exception:\n    pass\n",
        _READ + "class My(TrainingArguments):\n    no_cuda: bool = False\nprint(training_args.no_cuda)\n",
    ],
)
def test_quiet_about_attributes_that_are_there(code: str) -> None:
    assert findings(dsl264, code, context(transformers="==5.23.0")) == []


# -- the generator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator() -> object:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("generate_trainer_arguments")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def _wheel(folder: Path, library: str, version: str, **modules: str) -> None:
    with zipfile.ZipFile(folder / f"{library}-{version}-py3-none-any.whl", "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{library}/{name.replace('__', '/')}.py", text)


_FIELDS = """\
@dataclass
class TrainingArguments:
    output_dir: str
    {name}: str = field(default="no", metadata={{"help": "{help}"}})
    _n_gpu: int = field(init=False, default=-1)
    framework: ClassVar = "pt"
"""
_TRAINER = """\
class Trainer:
    {decorator}
    def __init__(self, model=None, args=None, {name}=None):
        pass
"""


def test_the_generator_reads_fields_parameters_and_decorators(generator: object, tmp_path: Path) -> None:
    rename = '@deprecate_kwarg("tokenizer", new_name="processing_class", version="5.0.0")'
    _wheel(
        tmp_path, "transformers", "4.0.0", training_args=_FIELDS.format(name="old", help="Deprecated, use `new`."),
        trainer=_TRAINER.format(decorator="", name="tokenizer"),
    )  # fmt: skip
    _wheel(
        tmp_path, "transformers", "4.46.1", training_args=_FIELDS.format(name="old", help=""),
        trainer=_TRAINER.format(decorator=rename, name="processing_class"),
    )  # fmt: skip
    _wheel(
        tmp_path, "transformers", "5.0.0", training_args=_FIELDS.format(name="new", help=""),
        trainer=_TRAINER.format(decorator="", name="processing_class"),
    )  # fmt: skip
    inherits = "class XConfig(TrainingArguments):\n    beta: float = 0.1\n"
    _wheel(tmp_path, "trl", "0.9.2", trainer__x_config=inherits)
    _wheel(tmp_path, "trl", "1.0.0", trainer__x_config=inherits.replace("beta", "gamma"))
    moved = inherits.replace("TrainingArguments", "YConfig").replace("beta", "delta")
    y_config = "class YConfig(TrainingArguments):\n    gamma: float = 0.1\n"
    _wheel(tmp_path, "trl", "1.1.0", trainer__x_config=inherits.replace("beta", "gamma"), trainer__y_config=y_config,
           experimental__x__x_config=moved)  # fmt: skip
    (tmp_path / "none").mkdir()
    data = json.loads(generator.render(tmp_path))  # type: ignore[attr-defined]
    arguments = data["transformers"]["classes"]["TrainingArguments"]
    assert arguments["names"] == {"new": ["5.0.0"], "old": ["4.0.0", "5.0.0"]}
    assert arguments["always"] == ["output_dir"]
    assert arguments["deprecated"] == {"old": "4.0.0"}
    trainer = data["transformers"]["classes"]["Trainer"]
    assert trainer["names"] == {"processing_class": ["4.46.1"], "tokenizer": ["4.0.0", "5.0.0"]}
    assert trainer["deprecated"] == {"tokenizer": "4.46.1"}
    config = data["trl"]["classes"]["XConfig"]
    assert config["base"] == {"TrainingArguments": ["0.9.2"]}
    assert config["names"] == {"beta": ["0.9.2", "1.0.0"], "gamma": ["1.0.0"]}
    assert config["moved"] == ["delta"]
    assert json.loads(generator.render(tmp_path / "none", data)) == data  # type: ignore[attr-defined]


def test_a_class_above_an_unknown_one_is_left_out(generator: object) -> None:
    text = "class Trainer(OtherTrainer):\n    pass\n"
    assert generator.classes({"transformers/trainer.py": text}, "transformers") == {}  # type: ignore[attr-defined]


def test_the_committed_table_agrees_with_the_installed_release() -> None:
    import importlib.util

    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("transformers is not installed")
    folder = Path(spec.submodule_search_locations[0])
    version = importlib.metadata.version("transformers")
    tree = ast.parse((folder / "training_args.py").read_text("utf-8"))
    (node,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TrainingArguments")
    fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    answers = {n: taken(ARGUMENTS, n, releases(f"=={version}")) for n in changing_names()}
    if version.rpartition(".")[0] != "5.23":
        pytest.skip(f"the table ends at another release than {version}")
    own = json.loads((ROOT / "schemas" / "trainer_arguments.json").read_text("utf-8"))
    for name in own["transformers"]["classes"]["TrainingArguments"]["names"]:
        assert (answers[name] == "yes") == (name in fields), name
