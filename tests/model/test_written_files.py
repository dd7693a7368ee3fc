"""Files that a script makes of others: what is followed is what the real programs write, the rest is unknown."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.engine.planning import plan_paths
from dslint.model.embedded.heredoc import WrittenConfig
from dslint.model.launch.document import read_launch_docs
from dslint.model.workspace import Workspace
from dslint.settings import make_settings

TEMPLATE = """{
  "train_micro_batch_size_per_gpu": 4, "train_batch_size": 64,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95]}},
  "tensorboard": {"enabled": true, "job_name": "a/b+c (1)"}
}
"""
CONFIG = json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 2}})


def written(script: str, **files: str) -> list[WrittenConfig]:
    texts = {"run.sh": script, **{name.replace("_json", ".json"): text for name, text in files.items()}}
    docs = read_launch_docs(SourceFile("run.sh", script), "shell", Workspace(Path("/nonexistent"), texts))
    return list(docs[0].written)


@pytest.mark.parametrize(
    "script",
    [
        "sed 's/: 4,/: 8,/' a.json > b.json",
        "sed 's/2/3/' a.json > b.json",
        "sed 's/2/3/g' a.json > b.json",
        r"sed 's/\"stage\": *[0-9]/\"stage\": 1/' a.json > b.json",
        r"sed 's/\(\"stage\": \)2/\13/' a.json > b.json",
        r"sed -E 's/(\"stage\": )[0-9]+/\11/; s/a\/b\+c/&d/' a.json > b.json",
        "sed -r -e 's#a/b#c#' -e 's|1e-5|2e-5|' < a.json > b.json",
        "sed 's/b+c (1)/x/' a.json > b.json",
        r"sed 's/b\+c/x/' a.json > b.json",
        'sed \'s/[[:space:]]*"stage"/"stage"/\' a.json > b.json',
        "sed 's/ADAMW/Adam/I' a.json > b.json",
        "cat a.json | sed 's/5e8/2e8/' | sed 's/64/32/' > b.json",
        "cp a.json b.json; sed -i 's/5e8/2e8/' b.json; sed -i.bak -e 's/64/32/' b.json",
        'B=32; sed "s/64/$B/" a.json > b.json',
        "B=32; sed 's/64/'\"$B\"'/' a.json > b.json",
        "jq '.zero_optimization.stage = 3' a.json > b.json",
        'jq \'."zero_optimization"."stage" = 3 | .train_batch_size = 32\' a.json > b.json',
        "jq '.zero_optimization[\"stage\"] |= 3' a.json > b.json",
        "jq 'del(.train_batch_size) | .gradient_accumulation_steps = 2' a.json > b.json",
        "jq 'del(.optimizer, .tensorboard.job_name)' a.json > b.json",
        'jq \'. + {"zero_optimization": {"stage": 1}, fp16: {enabled: true}}\' a.json > b.json',
        'jq \'. * {"zero_optimization": {"stage": 1}}\' a.json > b.json',
        "N=3; jq --argjson n \"$N\" --arg j run '.train_batch_size = $n | .tensorboard.job_name = $j' a.json > b.json",
        "jq --arg n 3 '.zero_optimization.stage = ($n | tonumber)' a.json > b.json",
        "export N=3; jq '.zero_optimization.stage = ($ENV.N|tonumber)' a.json > b.json",
        'N=3; jq ".zero_optimization.stage = $N | .optimizer.type = \\"Adam\\"" a.json > b.json',
        "cat a.json | jq '.train_batch_size = 32' > tmp && mv tmp b.json",
        "cp a.json b.json; jq '.fp16.enabled = true' b.json > t.json && mv t.json b.json",
        f"echo '{CONFIG}' | tee b.json",
        f"printf '%s' '{CONFIG}' > b.json",
        f"X='{CONFIG}'\ncat <<< \"$X\" > b.json",
        f'B=16; echo "{CONFIG.replace(chr(34), chr(92) + chr(34)).replace("8", "$B")}" > b.json',
    ],
)
@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq")
def test_what_is_followed_is_what_the_real_programs_write(script: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(TEMPLATE, encoding="utf-8")
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=60, capture_output=True)
    found = [w for w in written(f"# deepspeed\n{script}\n", a_json=TEMPLATE) if w.target == "b.json"]
    assert [w.doc.data for w in found] == [json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "script",
    [
        "sed '/stage/d' a.json > b.json",
        "sed '3s/2/3/' a.json > b.json",
        "sed -n 's/2/3/p' a.json > b.json",
        "sed 's/2/3/2' a.json > b.json",
        'sed "s/$OLD/3/" a.json > b.json',
        "jq '.zero_optimization.stage' a.json > b.json",
        "jq 'map_values(.)' a.json > b.json",
        "jq -s '.[0]' a.json > b.json",
        "jq '.fp16.enabled = true' $BASE > b.json",
        "jq '.fp16.enabled = true' missing.json > b.json",
        "if [ -n \"$X\" ]; then sed 's/2/3/' a.json > b.json; fi",
        'for s in 1 2; do sed "s/2/$s/" a.json > b.json; done',
        "true || sed 's/2/3/' a.json > b.json",
        "sed 's/2/3/' a.json >> b.json",
        "python -m pkg.tool < a.json > b.json",
        f"echo -e '{CONFIG}\\n' > b.json",
    ],
)
def test_what_is_not_followed_is_no_config(script: str) -> None:
    assert [w for w in written(f"# deepspeed\n{script}\n", a_json=TEMPLATE) if w.target == "b.json"] == []


def test_a_value_that_nobody_knows_hides_its_member_only() -> None:
    doc = written('# deepspeed\nsed "s/64/$BATCH/" a.json > b.json\n', a_json=TEMPLATE)[0].doc
    assert set(doc.opaque) == {"/train_batch_size"}
    assert doc.get("/zero_optimization/stage") == 2
    doc = written('# deepspeed\njq ".train_batch_size = $BATCH" a.json > b.json\n', a_json=TEMPLATE)[0].doc
    assert set(doc.opaque) == {"/train_batch_size"}


def test_a_value_stands_where_it_is_set() -> None:
    doc = written("# deepspeed\njq '.zero_optimization.stage = 3' a.json > b.json\n", a_json=TEMPLATE)[0].doc
    assert doc.source.path == "a.json"
    assert (doc.value("/zero_optimization/stage").path, doc.value("/train_batch_size").path) == ("run.sh", "a.json")
    text = "# deepspeed\nexport STAGE=7\nenvsubst < a.json > b.json\n"
    doc = written(text, a_json=TEMPLATE.replace('"stage": 2', '"stage": $STAGE'))[0].doc
    place = doc.value("/zero_optimization/stage")
    assert (place.path, place.region.line) == ("run.sh", 2)


def plans(folder: Path, script: str) -> list[object]:
    (folder / "a.json").write_text(TEMPLATE, encoding="utf-8")
    (folder / "train.py").write_text("import deepspeed\n", encoding="utf-8")
    (folder / "run.sh").write_text(script, encoding="utf-8")
    found = plan_paths([str(folder)], make_settings({"no-cache": True, "jobs": 1})).plans
    return [plan.config.get("/zero_optimization/stage") if plan.config is not None else None for plan in found]


def test_a_command_has_the_config_that_was_written_last_before_it(tmp_path: Path) -> None:
    run = "deepspeed train.py --deepspeed_config b.json\n"
    first, second = (
        'sed \'s/"stage": 2/"stage": 1/\' a.json > b.json\n',
        "jq '.zero_optimization.stage = 3' a.json > b.json\n",
    )
    assert plans(tmp_path, first + run) == [1]
    assert plans(tmp_path, run + first) == [None]
    assert plans(tmp_path, f"cp a.json b.json\n{first.replace('a.json > b.json', '-i b.json')}{run}") == [1]
    assert plans(tmp_path, f"{first}./adapt.sh b.json > b.json\n{run}") == [None]
    python = f"python - <<'EOF'\nimport json\njson.dump({CONFIG}, open('b.json', 'w'))\nEOF\n"
    assert plans(tmp_path, python + run) == [2]
    assert plans(tmp_path, first + run + second + run) == [None, None]


def test_a_value_that_a_test_decides_is_unknown() -> None:
    text = '# deepspeed\nif [ -n "$1" ]; then B=8; else B=16; fi\n'
    assert written(f'{text}echo "$B" > $B\ncp $B c.json\n', a_json=TEMPLATE) == []
    for line in ('sed "s/64/$B/" a.json > b.json', "jq --argjson b $B '.train_batch_size = $b' a.json > b.json"):
        found = written(f"{text}{line}\n", a_json=TEMPLATE)
        assert [w.target for w in found if "train_batch_size" in w.doc.data] == []


def test_a_file_that_a_test_may_have_changed_is_unknown() -> None:
    for line in ("sed -i 's/64/32/' a.json", "jq . a.json > t.json; cp t.json a.json", "echo x > a.json"):
        text = f'# deepspeed\nif [ -n "$1" ]; then {line}; fi\ncp a.json b.json\n'
        assert [w.target for w in written(text, a_json=TEMPLATE)] == []
