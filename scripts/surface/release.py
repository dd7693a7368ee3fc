"""All modules of one release, and what each of their names is in the end."""

from __future__ import annotations

import ast
import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace

from surface import numpynames
from surface.modules import CLOSED, OPEN, STUB, Entry, Module, read_module
from surface.outline import outline

# Modules that are there, but whose names nobody asks for: they are open, and not read.
_SHALLOW = re.compile(
    r"\.(tests?|third_party|_vendor)\.|^torch\.(_inductor|_dynamo|testing\._internal|_refs|_decomp|_export|_higher_order_ops)\.."
    r"|^torch\.(ao|onnx\._internal|fx\.experimental|utils\.benchmark|_numpy|_prims|_functorch|_subclasses|_lazy)\.."
    r"|^torch\.(jit\._|package\._|masked\._|sparse\._|export\._|_strobelight|_vendor|_custom_op|_library|backends\._)"
    r"|^numpy\.(f2py|distutils|testing|typing|_typing|array_api|_pyinstaller)\."
    r"|^vllm\.(?!engine\.|entrypoints\.llm$|lora\.request$|worker\.|executor\.|distributed\.\w+$)\w+\."
    r"|^lightning\.(app|store)\.|^lightning_(app|cloud)|\.(modeling_(tf|flax)|convert|modular|tokenization_tf)_\w+$"
    r"|^transformers\.(utils\.dummy_|models\.deprecated\.|data\.test_)|\.dummy_\w+$"
)
# Modules of single models: many, and alike. What they define is kept, what they import is not.
MODELS = re.compile(
    r"^(?:transformers\.models\.(?!auto\.)\w+\.(?!modeling_(?:llama|mistral|mixtral|qwen2|qwen2_vl|qwen2_5_vl|qwen3|gemma"
    r"|gemma2|bert|roberta|gpt2|gpt_neox|opt|bloom|t5|whisper|clip|llava|phi3)$)|diffusers\.(?:pipelines|models)\.\w+\.)\w+$"
)
# Modules whose names come from C code, and the stubs that list these.
FROM_C = {
    "torch": ("torch._C", "torch._C._VariableFunctions"),
    "torch.distributed": ("torch._C._distributed_c10d",),
}
# The folder of an sdist that its setup.py installs under another name.
MOVED_FOLDERS = {"deepspeed": {"op_builder/": "deepspeed/ops/op_builder/"}}


class Release:
    """The modules of a release by their names, and the resolution of names in them."""

    def __init__(
        self, library: str, path: str, known: dict[str, Module] | None = None, without: re.Pattern[str] | None = None
    ) -> None:
        self.library = library
        # Modules by their text, of this release; those of the one before are taken where the text is the same.
        self.texts: dict[str, Module] = {}
        self.modules: dict[str, Module] = {}
        self.aliases: dict[str, str] = {}
        # `setattr(torchaudio, name, ...)` from another module: nobody knows what the package itself has then.
        itself = re.compile(rf"\bsetattr\({library}, \w+, getattr\(")
        is_filled = False
        with zipfile.ZipFile(path) as texts:
            for name, package, file, stub in sorted(_files(library, texts.namelist())):
                if without is not None and without.search(name):
                    continue
                text = texts.read(file).decode("utf-8", "replace")
                if _SHALLOW.search(name):
                    self.modules[name] = _shallow(name, package, text)
                    continue
                is_filled = is_filled or itself.search(text) is not None
                whole = text
                if MODELS.search(name) and not package:
                    text = outline(text)
                digest = hashlib.sha256(f"{name}\0{text}".encode()).hexdigest()
                read = (known or {}).get(digest) or read_module(name, package, text, stub, whole)
                self.texts[digest] = read
                self.modules[name] = replace(read, names=dict(read.names), needs=list(read.needs))
            if library == "numpy":
                self._from_stub(texts)
        if is_filled:
            self.modules[library].opened = OPEN
        self._folders()
        for module in list(self.modules.values()):
            self._lazy(module)
        for module in list(self.modules.values()):
            self._aliases(module)
        self._from_c()
        self._star_done: set[str] = set()
        for name in list(self.modules):
            self._stars(name)

    def _folders(self) -> None:
        """Packages without ``__init__.py``."""
        for name in list(self.modules):
            while "." in name:
                name = name.rpartition(".")[0]
                if name not in self.modules:
                    self.modules[name] = Module(name, True)

    def _lazy(self, module: Module) -> None:
        """The names that a lazy module loads when asked."""
        if module.lazy is None:
            return
        if module.replaced:
            # What its own text binds is in the module that the lazy one takes the place of.
            own = module.names
            module.names = {name: own[name] for name in module.extra if name in own}
        for source, names in module.lazy.items():
            target = f"{module.name}.{source}" if source else module.name
            if source and "." not in source and source not in module.names:
                module.names[source] = Entry("i", target)
            for name in names:
                module.names[name] = Entry("i", f"{target}:{name}")
        if module.structured:
            base = module.name
            if base == self.library:
                base += ".models"
            for name, target in self._structure(base):
                module.names.setdefault(name, Entry("i", target))

    def _structure(self, base: str) -> Iterator[tuple[str, str]]:
        """What ``define_import_structure`` of transformers finds below a package."""
        for name, module in self.modules.items():
            last = name.rpartition(".")[2]
            if not name.startswith(base + ".") or last.startswith(("convert_", "modular_")):
                continue
            if not module.package:
                for each in [*(module.listed or ()), *module.required]:
                    yield each, f"{name}:{each}"

    def _aliases(self, module: Module) -> None:
        """``sys.modules["a.b"] = c``."""
        for name, dotted in module.aliases.items():
            first, _, rest = dotted.partition(".")
            entry = module.names.get(first)
            if name.split(".")[0] != self.library or entry is None or entry.kind != "i":
                continue
            target = entry.target.replace(":", ".") + ("." + rest if rest else "")
            if target in self.modules:
                self.aliases[name] = target
        for name, target in module.legacy.items():
            old, new = f"{self.library}.{name}", f"{self.library}.{target.lstrip('.')}"
            if new in self.modules:
                self.aliases[old] = new
                module.names[name] = Entry("i", new)
        if "image_processing_utils_fast" in module.legacy:
            for name in list(self.modules):
                match = re.fullmatch(r"transformers\.models\.(\w+)\.image_processing_(?!pil_)(\w+)", name)
                if match and f"{name}_fast" not in self.modules:
                    self.aliases[f"{name}_fast"] = name

    def _from_c(self) -> None:
        for name, stubs in FROM_C.items():
            module = self.modules.get(name)
            if module is None:
                continue
            module.opened = STUB
            for stub in stubs:
                for each in self.modules[stub].names if stub in self.modules else ():
                    if not each.startswith("_") and each not in module.names:
                        module.names[each] = Entry("i", f"{stub}:{each}")
        for name, module in self.modules.items():
            if name.startswith("torch._C") and module.opened == CLOSED:
                module.opened = STUB

    def _from_stub(self, texts: zipfile.ZipFile) -> None:
        """What the stub of numpy lists and its ``__getattr__`` keeps; of other modules no text tells all names."""
        for each in self.modules.values():
            each.opened = OPEN
        # Its star imports bind names of Python, which it takes away again.
        self.modules["numpy"].stars = []
        module = self.modules["numpy"]
        text = texts.read("numpy/__init__.py").decode()
        for name in numpynames.future_names(text):
            module.names.pop(name, None)
        found = [*numpynames.old_names(text)]
        if "numpy/__init__.pyi" in texts.namelist():
            found += numpynames.stub_names(texts.read("numpy/__init__.pyi").decode())
        for name in found:
            module.names.setdefault(name, Entry("v"))
        module.opened = STUB

    def _stars(self, name: str) -> None:
        """Bind what star imports bind."""
        if name in self._star_done:
            return
        self._star_done.add(name)
        module = self.modules[name]
        for source in module.stars:
            source = self.aliases.get(source, source)
            if source not in self.modules:
                module.opened = OPEN
                continue
            self._stars(source)
            other = self.modules[source]
            if other.opened and other.listed is None:
                module.opened = max(module.opened, other.opened)
            elif other.package and other.listed is None:
                # Modules of the package come along, if somebody has imported them before.
                module.opened = max(module.opened, STUB)
            for each in other.listed if other.listed is not None else list(other.names):
                if (other.listed is not None or not each.startswith("_")) and each not in module.names:
                    if each in other.names:
                        module.names[each] = Entry("i", f"{source}:{each}")
                    elif f"{source}.{each}" in self.modules:
                        module.names[each] = Entry("i", f"{source}.{each}")

    def resolve(self, target: str) -> tuple[str, str | None, Entry | None]:
        """The module, the name in it and what it is; a module itself has no name; an outside one no entry."""
        seen: set[str] = set()
        while target not in seen:
            seen.add(target)
            source, _, name = target.partition(":")
            source = self.aliases.get(source, source)
            if not name:
                return source, None, None
            module = self.modules.get(source)
            if module is None:
                return source, name, None
            entry = module.names.get(name)
            if entry is None or (entry.kind == "i" and entry.target == target):
                below = f"{source}.{name}"
                if below in self.modules or below in self.aliases:
                    return self.aliases.get(below, below), None, None
                return source, name, None
            if entry.kind != "i":
                return source, name, entry
            target = entry.target
        return source, name, None

    def dotted(self, module: str, text: str) -> str:
        """A dotted expression of a module as ``module:name`` inside of the library, else ``external``."""
        first, _, rest = text.partition(".")
        if not text.replace(".", "").replace("_", "").isalnum():
            return "?"
        entry = self.modules[module].names.get(first)
        if entry is None:
            return f"builtins:{first}" if not rest else "?"
        if entry.kind != "i":
            return f"{module}:{first}" if not rest else "?"
        source, name, found = self.resolve(entry.target)
        while rest and name is None:
            first, _, rest = rest.partition(".")
            source, name, found = self.resolve(f"{source}:{first}")
        if rest:
            return f"^{source}.{name}.{rest}"
        if found is not None:
            return f"{source}:{name}"
        return f"^{source}.{name}" if name else f"^{source}"


def _files(library: str, names: list[str]) -> Iterator[tuple[str, bool, str, bool]]:
    """The modules among the files: name, whether a package, path, whether a stub."""
    sources = set(names)
    moved = MOVED_FOLDERS.get(library, {})
    for file in names:
        path = file.removeprefix("src/")
        for old, new in moved.items():
            if path.startswith(old) and new + path.removeprefix(old) not in sources:
                path = new + path.removeprefix(old)
        if not path.startswith(library + "/"):
            continue
        stem, _, end = path.rpartition(".")
        if end not in ("py", "pyi") or (end == "pyi" and stem + ".py" in sources):
            continue
        parts = stem.split("/")
        package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if package else parts), package, file, end == "pyi"


def _shallow(name: str, package: bool, text: str) -> Module:
    """A module that is not read but for the names that it lists."""
    module = Module(name, package, opened=OPEN)
    match = re.search(r"^__all__ = (\[[^\]]*\])", text, re.M)
    if match:
        try:
            module.listed = [str(each) for each in ast.literal_eval(match[1])]
        except (ValueError, SyntaxError):
            module.listed = None
    return module
