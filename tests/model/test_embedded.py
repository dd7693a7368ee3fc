"""Configs inside Python files and shell scripts: which are found, what is known of them, that they count as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dslint.core.fact import known
from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.engine.fixer import fix_paths
from dslint.engine.run import check_paths
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.view import view_of
from dslint.model.embedded.python import python_configs
from dslint.model.firstlook import may_hold_config
from dslint.parse.data import DataDoc
from dslint.probe.experiment import Subject
from dslint.probe.registry import of_finding
from dslint.probe.report import why
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import Settings, make_settings

READ = "deepspeed.initialize(model=model, config=ds_config)\n"


def docs_of(text: str) -> tuple[DataDoc, ...]:
    text = text if "import deepspeed" in text else "import deepspeed\n" + text
    assert may_hold_config(text.encode())
    return python_configs(SourceFile("train.py", text))


def doc_of(text: str) -> DataDoc:
    docs = docs_of(text)
    assert len(docs) == 1
    return docs[0]


def words(doc: DataDoc, table: str = "values") -> dict[str, str]:
    spans = getattr(doc, table)
    return {p: doc.source.text[s.start : s.end] for p, s in spans.items()}


def test_a_display_is_read_with_its_places() -> None:
    doc = doc_of(
        "SIZE = 4\nds_config = {\n"
        "    'train_batch_size': SIZE * 2, 'fp16': dict(enabled=True, loss_scale=-1),  # é\n"
        "    'zero_optimization': {'stage': 3, 'reduce_bucket_size': int(5e8), 'x': 'a' 'b', 'y': None, 'z': (1, 2)},\n"
        "    'lr': args.lr, 'name': f'run-{SIZE}', **more(),\n}\n" + READ
    )
    assert doc.data == {}  # what `**more()` brings wins over all before it
    doc = doc_of(
        "SIZE = 4\nds_config = {\n"
        "    'é': 1, 'train_batch_size': SIZE * 2, 'fp16': dict(enabled=True, loss_scale=-1),\n"
        "    'zero_optimization': {'stage': 3, 'reduce_bucket_size': int(5e8), 'x': 'a' 'b', 'y': None, 'z': (1, 2)},\n"
        "    'lr': args.lr, 'name': f'run-{SIZE}',\n}\n" + READ
    )
    assert doc.data == {
        "é": 1,
        "train_batch_size": 8,
        "fp16": {"enabled": True, "loss_scale": -1},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 500000000, "x": "ab", "y": None, "z": [1, 2]},
        "name": "run-4",
    }
    assert set(doc.opaque) == {"/lr"}
    assert not doc.open_objects
    assert words(doc)["/train_batch_size"] == "SIZE * 2"
    assert words(doc, "keys")["/zero_optimization/stage"] == "'stage'"
    assert words(doc, "keys")["/fp16/loss_scale"] == "loss_scale"
    assert words(doc, "members")["/zero_optimization/stage"] == "'stage': 3"
    assert doc.consumer == "deepspeed"
    assert doc.dialect == "python"


@pytest.mark.parametrize(
    ("code", "consumer"),
    [
        ("from deepspeed import initialize\ninitialize(config_params={C})", "deepspeed"),
        ("from transformers import TrainingArguments\nTrainingArguments('out', deepspeed={C})", "hf"),
        ("from transformers import Seq2SeqTrainingArguments as A\nA('out', deepspeed={C})", "hf"),
        ("from trl import SFTConfig\nSFTConfig(deepspeed={C})", "hf"),
        ("from accelerate import DeepSpeedPlugin\nDeepSpeedPlugin(hf_ds_config={C})", "accelerate"),
        (
            "from accelerate.utils import DeepSpeedPlugin, HfDeepSpeedConfig\n"
            "DeepSpeedPlugin(hf_ds_config=HfDeepSpeedConfig({C}))",
            "accelerate",
        ),
        (
            "from lightning.pytorch.strategies import DeepSpeedStrategy\nt(strategy=DeepSpeedStrategy(config={C}))",
            "lightning",
        ),
        ("from transformers.integrations import HfDeepSpeedConfig\nHfDeepSpeedConfig({C})", "unknown"),
        ("kwargs = dict(config={C}, model=m)\nimport deepspeed\ndeepspeed.initialize(**kwargs)", "deepspeed"),
    ],
)
def test_readers(code: str, consumer: str) -> None:
    doc = doc_of(code.replace("{C}", "{'zero_optimization': {'stage': 2}}"))
    assert (doc.consumer, doc.get("/zero_optimization/stage")) == (consumer, 2)


CONFIG = "{'train_batch_size': 8, 'zero_optimization': {'stage': 2}}"


@pytest.mark.parametrize(
    ("code", "stage"),
    [
        ("ds_config['zero_optimization']['stage'] = 3", 3),
        ("ds_config.update({'zero_optimization': {'stage': 1}})", 1),
        ("ds_config.update(zero_optimization={'stage': 1})", 1),
        ("ds_config |= {'zero_optimization': dict(stage=1)}", 1),
        ("zero = ds_config['zero_optimization']\nzero['stage'] = 0", 0),
        ("if args.x:\n    ds_config['zero_optimization']['stage'] = 3", "?"),
        ("if args.x:\n    ds_config['zero_optimization']['stage'] = 2", 2),
        ("for s in (1, 3):\n    ds_config['zero_optimization']['stage'] = s", 3),
        ("for s in args.stages:\n    ds_config['zero_optimization']['stage'] = s", "?"),
        ("for s in stages:\n    pass", 2),
        ("ds_config['zero_optimization'][key] = 1", "?"),
        ("ds_config['zero_optimization']['stage'] = args.stage", "?"),
        ("ds_config[key] = 1", "?"),
        ("import helper\nhelper.adapt(ds_config['zero_optimization'])", "?"),
        ("other = dict(ds_config)\nother['zero_optimization'] = {'stage': 3}", 2),
        ("print(ds_config)\nlogger.info('config %s', ds_config)", 2),
        ("del ds_config['zero_optimization']['stage']", None),
        ("ds_config['zero_optimization'].pop('stage')", None),
        ("try:\n    ds_config['zero_optimization']['stage'] = 3\nexcept KeyError:\n    pass", "?"),
        ("def adapt(c):\n    c['zero_optimization']['stage'] = 3\nadapt(ds_config)", 3),
        ("def adapt():\n    ds_config['zero_optimization']['stage'] = 3\nadapt()", 3),
        ("with open('x') as f:\n    ds_config['zero_optimization']['stage'] = 1", 1),
        ("ds_config['zero_optimization'].setdefault('stage', 3)", 2),
        ("while True:\n    if x:\n        ds_config['zero_optimization']['stage'] = 3\n        break", 3),
        ("while x:\n    if y:\n        ds_config['zero_optimization']['stage'] = 3\n        break", "?"),
        ("DEBUG = False\nif DEBUG:\n    ds_config['zero_optimization']['stage'] = 3", 2),
        ("match args.x:\n    case 1:\n        ds_config['zero_optimization']['stage'] = 3", "?"),
    ],
)
def test_what_happens_between_the_display_and_its_reader(code: str, stage: object) -> None:
    doc = doc_of(f"ds_config = {CONFIG}\n{code}\n{READ}")
    fact = doc.fact("/zero_optimization/stage")
    assert ("?" if fact.is_unknown else fact.value) == stage


def test_code_behind_the_reader_changes_nothing() -> None:
    doc = doc_of(f"ds_config = {CONFIG}\n{READ}ds_config['zero_optimization']['stage'] = 3\nadapt(ds_config)\n")
    assert doc.get("/zero_optimization/stage") == 2


@pytest.mark.parametrize(
    "code",
    [
        f"ds_config = {CONFIG}\nadapt(ds_config)\n{READ}",
        f"def main(config):\n    config = {CONFIG}\n    adapt(c=config)\n    deepspeed.initialize(config=config)\n",
        f"import pytest\nds_config = {CONFIG}\nwith pytest.raises(AssertionError):\n    {READ}",
        f"class T:\n    def test(self):\n        c = {CONFIG}\n        with self.assertRaises(ValueError):\n"
        "            deepspeed.initialize(config=c)\n",
        # Settings of something else, and a config with no name that says so.
        f"settings = {CONFIG}\nsend(settings)\n",
        "model_args = {'train_batch_size': 8, 'lr': 1}\nds_config = load()\n",
    ],
)
def test_what_is_not_judged(code: str) -> None:
    assert not docs_of(code)


def test_a_function_that_makes_the_config_is_followed() -> None:
    text = (
        "def get_ds_config(stage, offload=False):\n    zero = {'stage': stage, 'offload_param': {'device': 'cpu' if"
        " offload else 'none'}}\n    return {'train_batch_size': 8, 'zero_optimization': zero}\n\n"
        "def main():\n    config = get_ds_config(3, args.offload)\n    deepspeed.initialize(config=config)\n\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    doc = doc_of(text)
    assert doc.data == {"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {}}}
    assert set(doc.opaque) == {"/zero_optimization/offload_param/device"}
    assert doc.computed == {"/zero_optimization/stage"}


def test_a_config_for_other_files_may_get_more_from_them() -> None:
    doc = doc_of(
        "def get_train_ds_config(offload):\n    return {'train_batch_size': 32, 'steps_per_print': 10,\n"
        "        'zero_optimization': {'stage': 2}}\n"
    )
    assert doc.consumer == "unknown"
    assert doc.fact("/train_batch_size").is_unknown
    assert doc.fact("/zero_optimization/stage").value == 2
    assert doc.fact("/zero_optimization/offload_param").is_unknown
    assert doc.fact("/gradient_clipping").is_unknown


@pytest.mark.parametrize("call", ["Trainer(ds_config)", "Trainer(config={'deepspeed': ds_config})"])
def test_a_config_that_other_code_gets_is_judged_as_it_is_then(call: str) -> None:
    doc = doc_of(f"def main():\n    ds_config = {CONFIG}\n    ds_config['bf16'] = {{}}\n    {call}\n")
    assert doc.consumer == "unknown"
    assert doc.has("/bf16")
    assert doc.fact("/gradient_clipping").is_unknown


def test_each_branch_has_its_own_config() -> None:
    docs = docs_of(
        "if args.big:\n    c = {'train_batch_size': 8}\nelse:\n    c = {'train_batch_size': 4}\n"
        "deepspeed.initialize(config=c)\n"
    )
    assert [d.data for d in docs] == [{"train_batch_size": 8}, {"train_batch_size": 4}]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def options(project: Path, **more: object) -> Settings:
    return make_settings({"cache": False, "jobs": 1, **more}, project)


def judged(project: Path, name: str, text: str, **more: object) -> list[Finding]:
    (project / name).write_text(text, encoding="utf-8")
    result = check_paths([name], options(project, **more))
    (project / name).unlink()
    assert not result.problems
    return result.findings


BAD = """\
import deepspeed

ds_config = {
    "train_batch_size": 8,
    "zero_optimization": {
        "stage": 2,  # the stage
        "overlap_com": True,
    },
}
ds_config["bf16"] = {"enabled": True, "loss_scale": 0}
engine, *_ = deepspeed.initialize(model=model, config=ds_config)
"""


def test_findings_stand_in_the_script_and_can_be_suppressed_there(project: Path) -> None:
    found = judged(project, "train.py", BAD)
    assert [
        (f.code, f.location.region.line, f.pointer)
        for f in found
        if f.code.startswith("DSL1") and f.severity.value == "error"
    ] == [
        ("DSL102", 7, "/zero_optimization/overlap_com"),
        ("DSL102", 10, "/bf16/loss_scale"),
    ]
    quiet = BAD.replace('"overlap_com": True,', '"overlap_com": True,  # dslint: ignore[DSL102]')
    found = judged(project, "train.py", quiet)
    assert [f.location.region.line for f in found if f.code == "DSL102"] == [10]
    by_pointer = {"per-file-ignores": {"train.py": ["DSL102:/bf16/loss_scale"]}}
    found = judged(project, "train.py", BAD, **by_pointer)
    assert [f.location.region.line for f in found if f.code == "DSL102"] == [7]


def test_fixes_are_written_as_python(project: Path) -> None:
    (project / "train.py").write_text(BAD.replace('"', "'"), encoding="utf-8")
    fixed = fix_paths(["train.py"], options(project), unsafe=True)
    text = fixed.after["train.py"]
    assert "'overlap_comm': " in text
    assert "ds_config['bf16'] = {'enabled': True}\n" in text
    assert "# the stage" in text
    compile(text, "train.py", "exec")
    assert not [f for f in fixed.result.findings if f.code == "DSL102"]


def test_a_notebook_cell_is_judged_without_a_fix(project: Path) -> None:
    cell = {"cell_type": "code", "source": BAD, "metadata": {}, "outputs": [], "execution_count": None}
    found = judged(project, "train.ipynb", json.dumps({"cells": [cell], "nbformat": 4, "nbformat_minor": 5}))
    found = [f for f in found if f.code == "DSL102"]
    assert [(f.location.region.cell, f.location.region.line, f.fix) for f in found] == [(1, 7, None), (1, 10, None)]


def test_a_key_that_stands_twice_is_a_warning_in_python(project: Path) -> None:
    found = judged(project, "train.py", BAD.replace("8,", '8,\n    "train_batch_size": 4,'))
    doubled = [f for f in found if f.code == "DSL111"]
    assert [(f.severity.value, f.location.region.line) for f in doubled] == [("warning", 5)]
    assert "Python" in doubled[0].message


def test_a_key_that_replaces_one_of_an_unpacked_dict_is_meant(project: Path) -> None:
    more = 'CONFIG = {"train_batch_size": 8, "steps_per_print": 9}\nOTHER = {**CONFIG, "train_batch_size": 4}\n'
    code = "import deepspeed\n" + more + "engine = deepspeed.initialize(model=make(), config=OTHER)\n"
    assert [f for f in judged(project, "train.py", code) if f.code == "DSL111"] == []


HEREDOC = """\
#!/bin/bash
STAGE=2
cat > "$OUT/ds.json" <<EOF
{
  "train_batch_size": $1,
  "gradient_accumulation_steps": $STEPS,
  "zero_optimization": {"stage": ${STAGE}, "overlap_com": true},
  "bf16": {"enabled": true, "loss_scale": 0}
}
EOF
deepspeed train.py --deepspeed_config $OUT/ds.json
"""


def test_a_heredoc_is_judged_in_the_script(project: Path) -> None:
    found = [f for f in judged(project, "run.sh", HEREDOC) if f.severity.value == "error"]
    places = [(f.code, f.location.region.line, f.location.region.column, f.pointer) for f in found]
    assert places == [
        ("DSL102", 7, 44, "/zero_optimization/overlap_com"),
        ("DSL102", 8, 29, "/bf16/loss_scale"),
    ]
    (project / "run.sh").write_text(HEREDOC, encoding="utf-8")
    text = fix_paths(["run.sh"], options(project)).after["run.sh"]
    assert '  "bf16": {"enabled": true}\n' in text
    assert text.count("\n") == HEREDOC.count("\n")


@pytest.mark.parametrize(
    "head",
    ["cat >> ds.json <<EOF", "python - <<EOF", "sbatch <<EOF", "read -r -d '' X <<EOF", "tee -a ds.json <<EOF"],
)
def test_other_heredocs_are_no_config_files(project: Path, head: str) -> None:
    text = HEREDOC.replace('cat > "$OUT/ds.json" <<EOF', head)
    assert not [f for f in judged(project, "run.sh", text) if f.code == "DSL102"]


RUN = "deepspeed --num_gpus 8 train.py --deepspeed_config out/ds.json --deepspeed\n"
TRIANGLE = '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}'


def files(project: Path, **texts: str) -> list[Finding]:
    for name, text in texts.items():
        (project / name.replace("_", ".")).write_text(text, encoding="utf-8")
    result = check_paths(["."], options(project))
    assert not result.problems
    return [f for f in result.findings if f.code in ("DSL130", "DSL408", "DSL443")]


PLAIN = "import deepspeed\nparser = deepspeed.add_config_arguments(parser)\ndeepspeed.initialize(args=args, model=m)\n"


def test_a_run_uses_the_config_that_its_script_has(project: Path) -> None:
    train = f"import deepspeed\nconfig = {TRIANGLE}\nmodel, *_ = deepspeed.initialize(model=model, config=config)\n"
    found = files(project, run_sh="deepspeed --num_gpus 8 train.py\n", train_py=train)
    assert [(f.code, str(f.location)) for f in found] == [("DSL408", "train.py:2")]
    assert [str(place) for place in found[0].related] == ["train.py:2", "run.sh:1"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"cat > out/ds.json <<EOF\n{TRIANGLE}\nEOF\n{RUN}", ["DSL408"]),
        (f"DS=out/ds.json\ncat <<EOF > $DS\n{TRIANGLE}\nEOF\n{RUN.replace('out/ds.json', '$DS')}", ["DSL408"]),
        # Another command changes it, or another one is written under the name.
        (f"cat > out/ds.json <<EOF\n{TRIANGLE}\nEOF\nsed -i s/30/32/ out/ds.json\n{RUN}", []),
        (f"cat > out/ds.json <<EOF\n{TRIANGLE}\nEOF\ncat > out/ds.json <<EOF\n{TRIANGLE}\nEOF\n{RUN}", []),
        (f"cat > $1 <<EOF\n{TRIANGLE}\nEOF\n{RUN.replace('out/ds.json', '$1')}", []),
        (f"{RUN}cat > out/ds.json <<EOF\n{TRIANGLE}\nEOF\n", []),
        (f"cat > out/ds.json <<EOF\n{TRIANGLE.replace('30', '$BATCH')}\nEOF\n{RUN}", []),
        (f"BATCH=30\ncat > out/ds.json <<EOF\n{TRIANGLE.replace('30', '$BATCH')}\nEOF\n{RUN}", ["DSL408"]),
    ],
)
def test_a_run_uses_the_config_that_the_launch_file_writes(project: Path, script: str, expected: list[str]) -> None:
    assert [f.code for f in files(project, run_sh=script, train_py=PLAIN)] == expected


def test_the_probe_gets_the_config_or_says_why_not(project: Path) -> None:
    found = [f for f in judged(project, "train.py", BAD) if f.pointer == "/bf16/loss_scale"]
    text = found[0].fact("config")
    assert isinstance(text, str)
    assert json.loads(text)["bf16"] == {"enabled": True, "loss_scale": 0}
    chosen = of_finding(Subject(found[0], text))
    assert chosen is not None
    assert chosen[1].params["text"] == text
    found = [f for f in judged(project, "train.py", BAD.replace("8,", "args.n,")) if f.pointer == "/bf16/loss_scale"]
    assert found[0].fact("config") is None
    chosen = of_finding(Subject(found[0], BAD))
    assert chosen is None
    assert why(found[0]) == "only a run knows `train_batch_size` of this config"


def test_bad_scripts_are_no_crash(project: Path) -> None:
    for text in (
        "import deepspeed\nds_config = {'zero_optimization': ",
        "import deepspeed\nds_config = {'zero_optimization': {'stage': 1}}\n" + "ds_config['a'] = {}\n" * 5000 + READ,
        "import deepspeed\nds_config = " + "{'zero_optimization': " * 60 + "1" + "}" * 60 + "\n" + READ,
        "import deepspeed\ndef f(c):\n    return f(c)\nds_config = {'zero_optimization': {1: 2}}\nf(ds_config)\n"
        + READ,
        "import deepspeed\nds_config = {'zero_optimization': {}}\nds_config['x'] = ds_config\n" + READ,
    ):
        codes = {f.code for f in judged(project, "train.py", text)}
        assert RULE_CRASHED.code not in codes


def _examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """The configs of all examples of the rules about configs that any JSON reader can read."""
    for info in all_rules():
        if info.kind != "config":
            continue
        for example in load_rule(info.code).examples:
            for name, text in example.files.items():
                if not name.endswith(".json"):
                    continue
                try:
                    data = json.loads(text, object_pairs_hook=_no_doubles)
                except ValueError:
                    continue
                if isinstance(data, dict) and "train_batch_size" in json.dumps(data):
                    yield info.code, data


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _as_hjson(number: str) -> float:
    return int(float(number)) if float(number).is_integer() else float(number)


EXAMPLES = list(_examples())
# "(ds_config.json:1, --world-size 2)" tells where a number stands; "(--world-size 2)" is the same for all.
_PLACE = re.compile(r" ?\((?=[^()]*\w:\d)[\w./]+[^()]*\)")


def _said(project: Path, files: dict[str, str], more: dict[str, object]) -> set[tuple[str, ...]]:
    """What is said of each file (by the name of its folder), without the places."""
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text(text, encoding="utf-8")
    top = next(iter(files)).partition("/")[0]
    result = check_paths([top], options(project, **more))
    assert not result.problems
    return {
        (Path(f.location.path).parent.name, f.code, f.severity.value, f.pointer or "", _PLACE.sub("", f.message))
        for f in result.findings
        if f.code[3] == "1"
    }


@pytest.mark.parametrize(("world", "indent"), [(None, None), (2, 2), (8, 4)])
def test_a_config_means_the_same_wherever_it_stands(project: Path, world: int | None, indent: int | None) -> None:
    more: dict[str, object] = {"consumer": "deepspeed", "deepspeed-version": "0.19.8"}
    if world is not None:
        more["world-size"] = world
    in_json, in_python, in_shell = {}, {}, {}
    for number, (code, example) in enumerate(EXAMPLES):
        # Hjson makes 1 of 1.0, a dict keeps it: there the two do not mean the same.
        data = json.loads(json.dumps(example), parse_float=_as_hjson)
        text = json.dumps(data, indent=indent)
        in_json[f"json/{code}-{number}/ds_config.json"] = text + "\n"
        in_python[f"python/{code}-{number}/train.py"] = (
            f"import deepspeed\n# zero_optimization: \nds_config = {data!r}\ndeepspeed.initialize(config=ds_config)\n"
        )
        in_shell[f"shell/{code}-{number}/make.sh"] = f"cat > ds_config.json <<'EOF'\n{text}\nEOF\n"
    as_file = _said(project, in_json, more)
    assert len(as_file) > len(EXAMPLES) / 2
    assert _said(project, in_python, more) == as_file
    assert _said(project, in_shell, more) == as_file


CONFIG_RULES = [load_rule(info.code) for info in all_rules() if info.kind == "config"]
# The first says less of the same mistake than the second, and speaks only where the second does not.
_WEAKER = {"DSL102": "DSL121", "DSL103": "DSL104"}


class _Code(str):
    """Python source as the value or key of a dict."""

    def __repr__(self) -> str:
        return str(self)


def _codes(python: str, context: Context) -> set[str] | None:
    docs = docs_of(f"import deepspeed\nds_config = {python}\n{READ}#'zero_optimization': \n")
    if len(docs) != 1:
        return None
    reader = view_of(docs[0], context).consumer
    rules = [r for r in CONFIG_RULES if not r.meta.consumers or reader in r.meta.consumers]
    return {finding.code for rule in rules for finding in rule.module.check(docs[0], context)}


def _pointers(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _pointers(value, (*above, key))


def _hidden(data: dict[str, Any], pointer: tuple[str, ...], how: str) -> str:
    """The dict in Python with one value computed, or one member left to code that adds members."""
    copy = json.loads(json.dumps(data))
    at = copy
    for key in pointer[:-1]:
        at = at[key]
    if how == "value":
        at[pointer[-1]] = _Code("f()")
    else:
        del at[pointer[-1]]
        more = {_Code("k()"): _Code("f()")} if how == "key" else {_Code("**f()"): _Code("")}
        rest = dict(at)
        at.clear()
        at.update({**more, **rest})
    return repr(copy).replace("**f(): ", "**f()")


HIDDEN = ("value", "key", "unpacked")


@pytest.mark.parametrize("consumer", ["deepspeed", "hf", "unknown"])
@pytest.mark.parametrize("version", ["", "==0.19.8"])
def test_what_only_a_run_knows_makes_no_finding(consumer: str, version: str, full: bool) -> None:
    """A finding that holds whatever the hidden value is holds for the value that the example has."""
    context = Context(deepspeed=VersionFact(version), consumer=known(consumer), world_size=known(8))
    for _, config in EXAMPLES:
        before = _codes(repr(config), context)
        assert before is not None
        for place, pointer in enumerate(_pointers(config)):
            for how in HIDDEN if full else (HIDDEN[place % len(HIDDEN)],):
                after = _codes(_hidden(config, pointer, how), context) or set()
                new = {code for code in after if code not in before and _WEAKER.get(code) not in before}
                assert not new, (config, pointer, how)
