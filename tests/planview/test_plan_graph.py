"""``dslint plan --format mermaid|svg``: boxes, arrows, a layout without overlaps, and no markup out of a file."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from command import dslint, outside
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.planview.graph import Graph
from dslint.planview.layers import layout
from dslint.planview.mermaid import render as mermaid_of
from dslint.planview.svg import render as svg_of

PROJECTS = Path(__file__).resolve().parents[1] / "fixtures" / "projects"
NAMES = sorted(path.name for path in PROJECTS.iterdir() if path.is_dir())
SVG = "{http://www.w3.org/2000/svg}"
# What a line of a flowchart may look like after the first one.
MERMAID = re.compile(
    r"  (?:n\d+\[\"[^\"\[\]{}|<>`]*(?:<br/>[^\"\[\]{}|<>`]*)*\"\]:::\w+"
    r"|n\d+ -->(?:\|\"[^\"|<>`]+\"\|)? n\d+|classDef \w+ \S+)"
)


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_of_every_fixture_project(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(outside(PROJECTS / name, tmp_path))
    chart = dslint("plan", "--format", "mermaid").out.splitlines()
    assert chart[0] == "flowchart LR"
    assert [line for line in chart[1:] if not MERMAID.fullmatch(line)] == []
    picture = dslint("plan", "--format", "svg")
    assert picture.code == 0
    root = ElementTree.fromstring(picture.out)
    assert float(root.get("width", "0")) > 100
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|<style|<image|href|@import", picture.out)


def test_two_commands_share_a_script_and_the_arrows_name_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside(PROJECTS / "llava-loss-zero", tmp_path))
    shown = texts(dslint("plan", "--format", "svg").out)
    assert shown.count("llava/train/train.py") == 1
    assert {"scripts/finetune.sh:10", "torchrun: 1 x 8 = 8 ranks", "batch 16 x 1 x 8 = 128"} <= set(shown)
    assert {"--deepspeed in finetune.sh:10", "--deepspeed in pretrain.sh:9"} <= set(shown)
    assert {"DeepSpeed 0.12.6", "ZeRO stage 3, bf16"} <= set(shown)


def test_files_of_accelerate_and_of_arguments_have_boxes(here: Path) -> None:
    (here / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    (here / "acc.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 4\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (here / "run.sh").write_text("accelerate launch --config_file acc.yaml train.py --deepspeed gone.json\n")
    chart = dslint("plan", "--format", "mermaid").out
    names = dict(re.findall(r"(n\d+)\[\"([\w.#;:]+?)<br/>", chart))
    arrows = {(names[a], names[b]) for a, b in re.findall(r"(n\d+) -->(?:\|[^|]*\|)? (n\d+)", chart)}
    assert ("run.sh:1", "acc.yaml") in arrows
    assert ("acc.yaml", "ds.json") in arrows
    assert "accelerate: 1 x 4 = 4 ranks" in chart


def test_plain_commands_are_left_out_unless_they_are_all(here: Path) -> None:
    (here / "a.sh").write_text("python convert.py\n")
    assert "convert.py" in dslint("plan", "--format", "mermaid").out
    (here / "b.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    assert "convert.py" not in dslint("plan", "--format", "mermaid").out


def test_no_text_of_a_file_becomes_markup(here: Path) -> None:
    name = "a\"]; click n0 'x' <b>&|{}[`1. #quot;--> end"
    (here / "run.sh").write_text(
        f"torchrun --nproc_per_node 2 '{name}.py' --deepspeed '</text><script>.json'\n".replace("'x'", "x")
    )
    chart = dslint("plan", "--format", "mermaid").out
    assert [line for line in chart.splitlines()[1:] if not MERMAID.fullmatch(line)] == []
    picture = dslint("plan", "--format", "svg").out
    assert "<script" not in picture
    assert any("click n0" in text for text in texts(picture))


def test_an_empty_graph_is_a_document_too(here: Path) -> None:
    assert ElementTree.fromstring(svg_of(Graph())).tag == f"{SVG}svg"
    assert mermaid_of(Graph()) == "flowchart LR\n"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_boxes_never_overlap_and_arrows_lead_to_the_right(data: st.DataObject) -> None:
    graph = Graph()
    size = data.draw(st.integers(1, 12))
    nodes = [graph.add("script", str(i), *["line"] * 1, f"more {i}") for i in range(size)]
    for i, j in itertools.combinations(range(size), 2):
        if data.draw(st.integers(0, 3)) == 0:
            graph.join(nodes[i], nodes[j])
    heights = {name: float(data.draw(st.integers(20, 90))) for name in graph.nodes}
    placed = layout(graph, heights)
    for a, b in itertools.combinations(placed.places.values(), 2):
        if a.column == b.column:
            assert abs(a.y - b.y) >= (a.height + b.height) / 2 - 0.01
    for way in placed.paths.values():
        columns = [placed.places[name].column for name in way]
        assert columns == list(range(columns[0], columns[-1] + 1))
        assert len(columns) > 1
    assert all(
        p.y - p.height / 2 >= -0.01 and p.y + p.height / 2 <= placed.height + 0.01 for p in placed.places.values()
    )
