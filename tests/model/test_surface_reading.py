"""How releases are read: small libraries written as text, packed and asked, through the whole of the generator."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslint.model.surface.blocks as blocks
from dslint.model.surface.history import Surface

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from surface import pack
from surface.linked import linked
from surface.merge import Names
from surface.needs import needs
from surface.release import Release

Read = Callable[..., Surface]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """A reader of releases 1, 2, ... of a library ``lib``, each given as its files."""

    def reading(*releases: dict[str, str], library: str = "lib") -> Surface:
        modules: dict[str, Names] = {}
        for place, files in enumerate(releases):
            for name, data in linked(release_of(tmp_path, files, library)).items():
                modules.setdefault(name, Names()).add(data, 1 << place)
        for name, names in modules.items():
            names.finish(name)
        versions = [str(place + 1) for place in range(len(releases))]
        target = tmp_path / "lib.names"
        pack.write(str(target), pack.Packer(library, versions, modules), {})
        monkeypatch.setattr(blocks, "load_bytes", lambda _: target.read_bytes())
        return Surface(library)

    return reading


def release_of(folder: Path, files: dict[str, str], library: str = "lib") -> Release:
    path = folder / "release.zip"
    with zipfile.ZipFile(path, "w") as texts:
        for name, text in files.items():
            texts.writestr(f"{library}/{name}", text)
    return Release(library, str(path))


def there(surface: Surface, dotted: str, release: str = "1") -> bool | None:
    return surface.presence(dotted).in_release(release)


def test_definitions_reexports_and_star_imports(read: Read) -> None:
    surface = read(
        {
            "__init__.py": "from .a import *\nfrom .b import old as new\nfrom . import a\nimport os",
            "a.py": "__all__ = ['listed']\n__all__ += ['more']\nlisted = more = hidden = 1",
            "b.py": "def old(): ...",
        }
    )
    assert there(surface, "lib.listed")
    assert there(surface, "lib.more")
    assert there(surface, "lib.hidden") is False
    assert there(surface, "lib.a.hidden")
    assert there(surface, "lib.new")
    assert surface.canonical("lib.new", "1") == "lib.b.old"
    assert there(surface, "lib.os")
    assert there(surface, "lib.os.path") is None
    assert there(surface, "lib.c") is False


def test_a_name_that_is_gone_and_where_it_is_now(read: Read) -> None:
    surface = read(
        {"__init__.py": "", "old.py": "class Engine:\n    def run(self): ..."},
        {"__init__.py": "", "new.py": "class Engine:\n    def start(self): ..."},
    )
    presence = surface.presence("lib.old.Engine")
    assert (presence.in_releases, presence.unknown_in) == ({"1"}, set())
    assert presence.moved_to == "lib.new.Engine"
    assert surface.presence("lib.old.Engine.run").moved_to == "lib.new.Engine.run"
    assert there(surface, "lib.new.Engine.start", "1") is False
    assert there(surface, "lib.new.Engine.start", "2")


@pytest.mark.parametrize(
    ("text", "there_", "absent"),
    [
        # Names that a module's own function answers to.
        ("def __getattr__(name):\n    if name == 'lazy': return 1\n    raise AttributeError(name)", "lazy", False),
        (
            "_L = {'lazy': '.a'}\ndef __getattr__(name):\n    if name in _L: return 1\n    raise AttributeError",
            "lazy",
            False,
        ),
        # Names that the text does not tell: nothing is gone.
        ("lazy = 1\ndef __getattr__(name):\n    return getattr(other, name)", "lazy", None),
        ("lazy = 1\nglobals().update(load())", "lazy", None),
        ("lazy = 1\nfrom elsewhere import *", "lazy", None),
        ("lazy = 1\nimport sys\nsys.modules[__name__] = Thing()", "lazy", None),
        ("lazy = 1\nfor n in load(): globals()[n] = 1", "lazy", None),
        # Bound in blocks and by functions, whatever the condition.
        ("try:\n    import fast as lazy\nexcept ImportError:\n    pass", "lazy", False),
        ("if ok():\n    def lazy(): ...", "lazy", False),
        ("def f():\n    global lazy\n    lazy = 1", "lazy", False),
        ("globals()['lazy'] = 1", "lazy", False),
        ("import sys\nsetattr(sys.modules[__name__], 'lazy', 1)", "lazy", False),
    ],
)
def test_open_modules(read: Read, text: str, there_: str, absent: bool | None) -> None:
    surface = read({"__init__.py": text})
    assert there(surface, f"lib.{there_}")
    assert there(surface, "lib.surely_not") is absent


def test_names_for_type_checkers_and_deleted_ones_do_not_exist(read: Read) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import only\nfor i in (): pass\ndel i"
    surface = read({"__init__.py": text, "a.py": "only = 1"})
    assert there(surface, "lib.only") is False
    assert there(surface, "lib.i") is False


LAZY = """
_import_structure = {"utils": ["Tool"], "models.bert": []}
try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .utils import dummy
else:
    _import_structure["models.bert"].extend(["Bert"])
    _import_structure["models.bert"].append("BertConfig")
import sys
sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure, extra_objects={"extra": 1})
"""


def test_lazy_modules(read: Read) -> None:
    surface = read(
        {
            "__init__.py": LAZY,
            "utils.py": "class Tool: ...",
            "models/__init__.py": "",
            "models/bert.py": "class Bert:\n    def forward(self, x, *, y=None): ...\nclass BertConfig: ...",
        }
    )
    assert there(surface, "lib.Tool")
    assert there(surface, "lib.Bert.forward")
    assert there(surface, "lib.BertConfig")
    assert there(surface, "lib.extra")
    # The lazy module stands in the place of the one that binds these.
    assert there(surface, "lib.sys") is False
    assert there(surface, "lib._import_structure") is False
    signature = surface.signature("lib.Bert.forward", "1")
    assert signature is not None
    assert [(each.name, each.kind, each.default) for each in signature.parameters] == [
        ("x", "either", None),
        ("y", "keyword", "None"),
    ]


def test_names_that_transformers_finds_in_folders(read: Read) -> None:
    start = "import sys\nstructure = define_import_structure(__file__, prefix='models')\n"
    surface = read(
        {
            "__init__.py": start + "sys.modules[__name__] = _LazyModule(__name__, '', structure)",
            "models/__init__.py": "",
            "models/bert/__init__.py": "",
            "models/bert/modeling_bert.py": "__all__ = ['Bert']\nclass Bert: ...\nclass Inner: ...",
            "models/bert/processing_bert.py": "@requires(backends=('vision',))\nclass Processor: ...",
            "models/bert/convert_bert.py": "__all__ = ['convert']",
        },
        library="transformers",
    )
    assert there(surface, "transformers.Bert")
    assert there(surface, "transformers.Processor")
    assert there(surface, "transformers.Inner") is False
    assert there(surface, "transformers.convert") is False


def test_classes_and_their_bases(read: Read) -> None:
    text = """
from abc import ABC
import torch
class Base(ABC):
    kept = 1
    def __init__(self, a, b=2):
        self.made = a
class Child(Base):
    def own(self): ...
    @property
    def value(self): ...
class Module(torch.nn.Module):
    def own(self): ...
class Any:
    def __getattr__(self, name): ...
class Setting:
    def __init__(self, **kwargs):
        for key, value in kwargs.items():
            setattr(self, key, value)
"""
    surface = read({"__init__.py": text + "    gone = 1\n"}, {"__init__.py": text})
    assert there(surface, "lib.Child.kept")
    assert there(surface, "lib.Child.made")
    assert there(surface, "lib.Child.__class__")
    assert there(surface, "lib.Child.value")
    assert there(surface, "lib.Child.nothing") is False
    assert there(surface, "lib.Module.own")
    assert there(surface, "lib.Module.nothing") is None
    assert there(surface, "lib.Any.nothing") is None
    # Once a name of the class, and no more: gone, though its methods may set any name.
    assert there(surface, "lib.Setting.gone", "1")
    assert there(surface, "lib.Setting.gone", "2") is False
    assert there(surface, "lib.Setting.nothing", "2") is None
    signature = surface.signature("lib.Child", "1")
    assert signature is not None
    assert [(each.name, each.default) for each in signature.parameters] == [("a", None), ("b", "2")]
    assert surface.signature("lib.Module", "1") is None


def test_dataclasses_named_tuples_and_models_of_pydantic(read: Read) -> None:
    text = """
from dataclasses import dataclass, field, KW_ONLY
from typing import ClassVar, NamedTuple
from pydantic import BaseModel
@dataclass
class BaseMixin:
    a: int = 1
    b: list = field(default_factory=list)
@dataclass
class Child(BaseMixin):
    shared: ClassVar[int] = 3
    hidden: int = field(init=False, default=1)
    a: int = 5
    _: KW_ONLY
    c: int = 2
class Pair(NamedTuple):
    left: int
    right: int = 0
class Model(BaseModel):
    size: int = 3
"""
    surface = read({"__init__.py": text})

    def rows(name: str) -> list[tuple[str, str, str | None]] | None:
        signature = surface.signature(f"lib.{name}", "1")
        return [(each.name, each.kind, each.default) for each in signature.parameters] if signature else None

    assert rows("Child") == [("a", "either", "5"), ("b", "either", "..."), ("c", "keyword", "2")]
    assert rows("Pair") == [("left", "either", None), ("right", "either", "0")]
    assert rows("Model") is None
    assert there(surface, "lib.Model.size")
    assert there(surface, "lib.Pair.left")


def test_old_names_of_arguments_and_decorators(read: Read) -> None:
    text = """
@deprecate_kwarg("tokenizer", new_name="processing_class", version="5")
def train(model, processing_class=None): ...
@changes_everything
def other(model): ...
"""
    surface = read({"__init__.py": text})
    signature = surface.signature("lib.train", "1")
    assert signature is not None
    assert signature.old_names == {"tokenizer": "processing_class"}
    assert signature.accepts("tokenizer")
    assert not signature.accepts("nothing")
    assert signature.certain
    other = surface.signature("lib.other", "1")
    assert other is not None
    assert not other.certain


def needed(folder: Path, files: dict[str, str], entry: str = "lib") -> Any:
    return sorted((dotted, conditions) for dotted, _, conditions in needs(release_of(folder, files))[entry])


def test_what_an_import_needs_of_other_libraries(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from .a import run",
        "a.py": """
import transformers
from transformers import DynamicCache
from .b import more
def run():
    from transformers import inside
class Own(transformers.Trainer): ...
""",
        "b.py": """
from packaging import version
import importlib.metadata
more = 1
try:
    from transformers import caught
except ImportError:
    caught = None
if is_peft_available():
    from peft import LoraConfig
if version.parse(importlib.metadata.version("transformers")) >= version.parse("4.33.0"):
    from transformers.integrations import new
else:
    from transformers.deepspeed import old
if something():
    from transformers import guarded
""",
        "c.py": "from torch import unreached",
    }
    assert needed(tmp_path, files) == [
        ("packaging.version", ()),
        ("peft.LoraConfig", ("available:peft",)),
        ("transformers", ()),
        ("transformers.DynamicCache", ()),
        ("transformers.Trainer", ()),
        ("transformers.deepspeed.old", ("!transformers>=4.33.0",)),
        ("transformers.integrations.new", ("transformers>=4.33.0",)),
    ]


def test_what_a_lazy_module_needs_when_it_is_asked(tmp_path: Path) -> None:
    files = {
        "__init__.py": 'import sys\n_import_structure = {"a": ["run"]}\n'
        "sys.modules[__name__] = _LazyModule(__name__, '', _import_structure)",
        "a.py": "from transformers import DynamicCache\nrun = 1",
    }
    assert needed(tmp_path, files) == []
    assert needed(tmp_path, files, "lib.a") == [("transformers.DynamicCache", ())]


def test_stubs_name_what_comes_from_c(read: Read) -> None:
    files = {
        "__init__.py": "from torch._C import *\nclass Tensor(torch._C.TensorBase): ...\nimport torch",
        "_C/__init__.pyi": "def relu(x): ...\ndef gone(x): ...\nclass TensorBase:\n    def cuda(self): ...",
    }
    later = {**files, "_C/__init__.pyi": files["_C/__init__.pyi"].replace("def gone(x): ...\n", "")}
    surface = read(files, later, library="torch")
    assert there(surface, "torch.relu")
    assert there(surface, "torch.gone", "1")
    assert there(surface, "torch.gone", "2") is False
    assert there(surface, "torch.never", "2") is None
    assert there(surface, "torch.Tensor.cuda")
    assert there(surface, "torch.Tensor.never") is None


def test_what_a_stub_lists_later_may_have_been_there_before(read: Read) -> None:
    files = {
        "__init__.py": "from torch._C import ReduceOp, TensorBase",
        "_C/__init__.pyi": "class ReduceOp:\n    SUM = ...\n    OLD = ...\nclass TensorBase:\n    def cuda(self): ...",
    }
    later = {
        **files,
        "_C/__init__.pyi": "class ReduceOp:\n    SUM = ...\n    AVG = ...\nclass TensorBase:\n    def xpu(self): ...",
    }
    surface = read(files, later, library="torch")
    assert there(surface, "torch.ReduceOp.AVG", "2")
    assert there(surface, "torch.ReduceOp.AVG", "1") is None
    assert there(surface, "torch.ReduceOp.OLD", "2") is False
    assert there(surface, "torch.TensorBase.xpu", "1") is False
