"""Shell text and Markdown fences: positions, comments, errors, and input that nobody should write."""

from __future__ import annotations

import gc
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell_helpers import read_invocations

from dslint.core.source import Region, SourceFile, Span
from dslint.model.firstlook import may_launch
from dslint.model.launch.document import LaunchDoc, read_launch_docs
from dslint.parse.markdown import fences, indented_blocks, without_prompts
from dslint.parse.shell import parse_shell
from dslint.parse.shelllex import simple_command


def words(script: str, command: str = "run") -> list[str | None]:
    doc = parse_shell(SourceFile("a/run.sh", script))
    found = read_invocations(doc, lambda raw: raw.startswith(command))
    assert found, script
    return [w.text for w in found[-1].words[1:]]


# -- Positions -----------------------------------------------------------------------------------------------------


def test_spans_count_code_points_not_bytes() -> None:
    source = SourceFile("run.sh", "echo é😀 # grüße\nfoo --ü 1 # two\n")
    doc = parse_shell(source)
    assert [source.text[c.start : c.end] for c in doc.comments] == ["# grüße", "# two"]
    invocation = read_invocations(doc, lambda raw: raw.startswith("foo"))[0]
    assert [(str(w.location), w.location.region.column) for w in invocation.words] == [
        ("run.sh:2", 1),
        ("run.sh:2", 5),
        ("run.sh:2", 9),
    ]


def test_a_fragment_reports_in_the_host_file() -> None:
    source = SourceFile("README.md", "# Ü\n\n```bash\n# why\ntorchrun a.py  # ok\n```\n")
    (doc,) = read_launch_docs(source, "markdown")
    assert [source.text[c.start : c.end] for c in doc.shell.comments] == ["# why", "# ok"]
    assert str(doc.commands[0].location) == "README.md:5"
    script = doc.commands[0].script
    assert script is not None
    assert source.text[script.location.span.start : script.location.span.end] == "a.py"


@given(st.text("ab$\"'\\ \n#(){}<>|&;é`=*", max_size=40))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    for kind in ("shell", "markdown"):
        for doc in read_launch_docs(SourceFile("x", f"torchrun {text}\n```sh\ntorchrun {text}\n"), kind):
            assert all(0 <= c.location.span.start < c.location.span.end for c in doc.commands)


DEEP = 10_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEEP + "torchrun a.py" + ")" * DEEP,
        "if true; then\n" * DEEP + "torchrun a.py\n" + "fi\n" * DEEP,
        "torchrun " + "$(" * DEEP + "x" + ")" * DEEP,
        "torchrun " + "${A:-" * DEEP + "x" + "}" * DEEP,
        "torchrun $((" + "(" * DEEP + "1" + ")" * DEEP + "))",
        "torchrun '" + "x\n" * DEEP,
        "AA=x\n" + 'AA="$AA$AA"\n' * 60 + "torchrun $AA a.py",
        "torchrun \0 a.py",
    ],
    ids=["subshells", "ifs", "substitutions", "defaults", "arithmetic", "open quote", "doubling", "NUL"],
)
def test_hostile_scripts_end_without_a_traceback(text: str) -> None:
    docs = read_launch_docs(SourceFile("run.sh", text), "shell")
    assert len(docs) == 1


def test_what_cannot_be_parsed_is_kept_apart() -> None:
    doc = parse_shell(SourceFile("run.sh", "if then fi ((\ntorchrun a.py\n"))
    assert doc.errors
    assert not parse_shell(SourceFile("run.sh", "torchrun --data <your data> \\\n  a.py\n")).errors


# -- Values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("N=4\nrun $N", ["4"]),
        ("N=4\nN=8\nrun $N", ["8"]),
        ("export N=4\nrun --n=${N}", ["--n=4"]),
        ("run ${N:-8}", ["8"]),
        ("N=2\nG=8\nrun $((N * G)) $(( $N*$G / 4 ))", ["16", "4"]),
        ("A='--a 1'\nrun $A \"$A\"", ["--a", "1", "--a 1"]),
        ("A=(--a 'x y')\nA+=(z)\nrun \"${A[@]}\"", ["--a", "x y", "z"]),
        ("run \\\n  a \\\n  b 2>&1 >log | tee x", ["a", "b"]),
        ("run a >log b", ["a", "b"]),
        ("read -r -d '' A <<EOF\n x \\\n  y\nEOF\nrun $A", ["x", "y"]),
        (": ${N:=3}\nrun $N", ["3"]),
        ("if [ $1 ]; then N=4; else N=4; fi\nrun $N", ["4"]),
        ("(N=4)\nN=2; (N=4)\nrun $N", ["2"]),
        ("N=2\nN=4 true\nrun $N", ["2"]),
        ("cd x && N=3 && run $N", ["3"]),
        ("N=2\nf() { N=4; }\nf\nrun $N", ["4"]),
        ("N=2\nf() { local N=4; }\nf\nrun $N", ["2"]),
        ("f() { local N=$1; shift; run $N \"$@\" $#; }\nf 4 'a b' c", ["4", "a b", "c", "2"]),
        ("g() { run $2; }\nf() { g x $1; }\nf 7", ["7"]),
        ("main() { helper; }\nhelper() { run $N; }\nN=5\nmain", ["5"]),
        ("set -- a b c\nrun ${@:2} $#", ["b", "c", "3"]),
        ("L=(a b c d)\nrun ${L[@]:1:2}", ["b", "c"]),
        ("P=a/b/c.json\nrun ${P%.json} ${P##*/} ${P%/*} ${P#*/}", ["a/b/c", "c.json", "a/b", "b/c.json"]),
        ("run ${1:-8}", ["8"]),
    ],
)
def test_plain_values_are_known(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    "script",
    [
        "run $N",
        "run $1",
        'run "$@"',
        "N=$(nproc)\nrun $N",
        "N=`nproc`\nrun $N",
        "read N\nrun $N",
        "if [ $X ]; then\nf() { N=4; }\nelse\nf() { N=8; }\nfi\nf\nrun $N",
        "f() { run $1; }\nf $X",
        "N=2\nsource env.sh\nrun $N",
        "N=2\neval $1\nrun $N",
        "N=2\nexport $(cat .env)\nrun $N",
        "run ~/x",
        "run *.py",
        "run {1,2",
        "A='*'\nrun $A",
        "N=2 run $N",
    ],
)
def test_everything_else_is_unknown(script: str) -> None:
    assert words(script) == [None]


def ways(script: str) -> list[tuple[str, ...]]:
    """The words of ``run`` for each way that the script may go, with the conditions behind a bar."""
    doc = parse_shell(SourceFile("run.sh", script))
    found = read_invocations(doc, lambda raw: raw.startswith("run"))
    return [(*(w.text or "?" for w in i.words[1:]), *(f"| {c}" for c in i.conditions)) for i in found]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Tests that the text decides.
        ("N=2\nif [ $N -gt 1 ]; then M=a; else M=b; fi\nrun $M", [("a",)]),
        ("N=2\n[[ $N == [0-9] && ! -z $N ]] && M=a || M=b\nrun $M", [("a",)]),
        ("N=2\n((N > 2)) || M=b\nrun $M", [("b",)]),
        ("N=x\ncase $N in y|z) M=a;; x*) M=b;; *) M=c;; esac\nrun $M", [("b",)]),
        ("if false; then run a; exit; elif true; then run b; else run c; fi", [("b",)]),
        ("N=2\n((N++))\nrun $N", [("3",)]),
        ("run a\nexit\nrun b", [("a",)]),
        ("exec run a\nrun b", []),
        # What nobody has set has its default.
        ('[ -z "$X" ] && X=4\nrun $X', [("4",)]),
        ('if [ -z "${X:-}" ]; then\n  export X=4\nfi\nrun $X', [("4",)]),
        ('[ -n "$X" ] || X=4\nrun $X', [("4",)]),
        ("if [[ -z ${X+x} ]]; then X=4; fi\nrun $X", [("4",)]),
        ('N=$1\nif [ "$N" == "" ]; then N=4; fi\nrun $N', [("4",)]),
        # The other arm is read too: the caller may choose it.
        ('if [ "${M:-a}" = a ]; then run a; N=1; else run b; N=2; fi\nrun $N', [("a",), ("b",), ("1",)]),
        ("M=${M:-a}\nif [ $M = b ]; then run $M; fi\nrun $M", [("?",), ("a",)]),
        ("case ${1:-a} in a) run a;; b) run b;; *) exit;; esac\nrun c", [("a",), ("b",), ("c",)]),
        ('case "${1:-}" in a) run a;; *) exit;; esac\nrun c', [("a",), ("c",)]),
        ('if [ "${M:-a}" = b ]; then run b; else run a; fi', [("b",), ("a",)]),
        ('if [ "${M:-a}" = a ]; then run a; exit; fi\nrun b', [("a",), ("a",), ("b",)]),
        (
            "case $1 in a) N=1;& b) M=2;; *) exit;; esac\nrun ${N:-0} $M",
            [
                ("1", "2", "| `$1` is a (run.sh:1)"),
                ("0", "2", "| `$1` is b (run.sh:1)"),
            ],
        ),
        # Tests that nobody can decide.
        (
            "N=2\nif [ $1 ]; then N=4; fi\nrun $N",
            [("2", "| `$1` is empty (run.sh:2)"), ("4", "| `$1` is not empty (run.sh:2)")],
        ),
        (
            "case $1 in\nzero2) C=a;;\nzero3) C=b;;\nesac\nrun $C",
            [
                ("a", "| `$1` is zero2 (run.sh:1)"),
                ("b", "| `$1` is zero3 (run.sh:1)"),
                ("?", "| `$1` is something else (run.sh:1)"),
            ],
        ),
        # One flag is asked twice: the two values belong together.
        (
            'A=1; [ "$1" = x ] && A=2\nif [[ "$1" == x ]]; then B=2; else B=1; fi\nrun $A $B',
            [("2", "2", "| `$1` is x (run.sh:1)"), ("1", "1", "| `$1` is not x (run.sh:1)")],
        ),
        # It is not both.
        (
            "[ $1 = x ] && A=1\n[ $1 = y ] && A=2\nrun ${A:-0}",
            [
                ("2", "| `$1` is y (run.sh:2)"),
                ("1", "| `$1` is x (run.sh:1)", "| `$1` is not y (run.sh:2)"),
                ("0", "| `$1` is not x (run.sh:1)", "| `$1` is not y (run.sh:2)"),
            ],
        ),
        ("[ $1 = x ] && run $1", [("x", "| `$1` is x (run.sh:1)")]),
        ("if [ $1 = x ]; then exit; fi\nif [ $1 = x ]; then A=1; fi\nrun a $A", [("a", "?")]),
        # What a condition inside a condition ends does not come here: not both.
        (
            "if [ $1 = x ]; then if [ $2 = y ]; then exit; fi; fi\n[ $1 = x ] && A=1\n[ $2 = y ] && B=1\n"
            "run ${A:-0} ${B:-0}",
            [
                ("1", "0", "| `$1` is x (run.sh:1)", "| `$2` is not y (run.sh:1)"),
                ("0", "1", "| `$1` is not x (run.sh:1)", "| `$2` is y (run.sh:1)"),
                ("0", "0", "| `$1` is not x (run.sh:1)", "| `$2` is not y (run.sh:1)"),
            ],
        ),
        (
            "N=2\nf() { if [ $X ]; then return; fi; N=4; }\nf\nrun $N",
            [("4", "| `$X` is empty (run.sh:2)"), ("2", "| `$X` is not empty (run.sh:2)")],
        ),
        (
            "if cmd; then cd a; else cd b; fi\nrun x",
            [("x", "| `cmd` succeeds (run.sh:1)"), ("x", "| `cmd` fails (run.sh:1)")],
        ),
        ("cd a || exit 1\nrun x", [("x",)]),
        ("if [ $1 ]; then echo a; else echo b; fi\nrun x", [("x",)]),
        # Loops.
        ("N=2\nfor N in 1 2; do run $N; done\nrun $N", [("1",), ("2",), ("2",)]),
        ("N=2\nfor i in 1 2; do run $N; N=4; done", [("2",), ("4",)]),
        ("for ((i=0; i<2; i++)); do run $i; done\nrun $i", [("0",), ("1",), ("2",)]),
        ("i=0\nwhile [ $i -lt 2 ]; do run $i; i=$((i+1)); done", [("0",), ("1",)]),
        ("for i in 1 2 3; do [ $i = 2 ] && continue; run $i; done", [("1",), ("3",)]),
        ("for i in 1 2 3; do run $i; [ $i = 2 ] && break; done", [("1",), ("2",)]),
        ("N=2\nfor i in $LIST; do run $N; N=4; done\nrun $N", [("?",), ("?",)]),
        ("while true; do run a && break; sleep 1; done\nrun b", [("a",), ("b",)]),
        ("until run a; do sleep 1; done\nrun b", [("a",), ("b",)]),
        ("N=4\nwhile [ $# -gt 0 ]; do\ncase $1 in -n) N=$2; shift;; *) exit 1;; esac\nshift\ndone\nrun $N", [("4",)]),
        ("N=4\nwhile getopts n: o; do case $o in n) N=$OPTARG;; esac; done\nrun $N", [("4",)]),
    ],
)
def test_tests_and_loops_are_followed(script: str, expected: list[tuple[str, ...]]) -> None:
    assert ways(script) == expected


def test_activating_an_environment_changes_no_launch_variable() -> None:
    assert words("N=2\nsource ~/venv/bin/activate\nsource ~/.bashrc\nrun $N") == ["2"]


def test_a_value_remembers_where_it_was_set() -> None:
    doc = parse_shell(SourceFile("run.sh", 'N=2\nA="--n $N"\nrun $A\n'))
    word = read_invocations(doc, lambda raw: raw.startswith("run"))[0].words[2]
    assert [str(o) for o in word.origins] == ["run.sh:2", "run.sh:1"]


# -- Markdown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```bash\na\n```\nb\n```sh\nc\n```\n", [("bash", "a\n"), ("sh", "c\n")]),
        ("~~~~ console title=x\n~~~\na\n~~~~~\n", [("console", "~~~\na\n")]),
        ("```{.bash .numberLines}\na\n```\n", [("bash", "a\n")]),
        ("``` a`b\nno fence\n", []),
        ("````\n```\nx\n```\n````\n", [("", "```\nx\n```\n")]),
        ("```sh\nnever closed\n", [("sh", "never closed\n")]),
        ("- item\n  ```sh\n  a\n  ```\n", [("sh", "  a\n")]),
        ("> ```sh\n> a\n> ```\n", [("sh", "  a\n")]),
        ("    * x\n        ```sh\n        a\n- next\n```sh\nb\n```\n", [("sh", "        a\n"), ("sh", "b\n")]),
        ("```sh\r\na\r\n```\r\n", [("sh", "a\r\n")]),
    ],
)
def test_fences_follow_commonmark(text: str, expected: list[tuple[str, str]]) -> None:
    found = list(fences(text))
    assert [(f.language, f.text) for f in found] == expected
    for fence in found:
        assert len(fence.text) == fence.span.end - fence.span.start


def test_prompts_and_output_are_blanked_in_place() -> None:
    session = "$ torchrun a.py \\\n>   --x\nepoch 1\n$ ls\n"
    script = without_prompts(session)
    assert len(script) == len(session)
    assert script.split("\n") == ["  torchrun a.py \\", "    --x", "       ", "  ls", ""]
    assert without_prompts("X=$A\nrun $X\n") == "X=$A\nrun $X\n"
    broken = ">>> python3 a.py \\ # why\n  --x\n{}\n"  # meant to go on
    assert without_prompts(broken).split("\n") == ["    python3 a.py \\ # why", "  --x", "  ", ""]
    assert without_prompts(">>> run()\nNone\n") == ">>> run()\nNone\n"


def docs(text: str) -> list[LaunchDoc]:
    return read_launch_docs(SourceFile("README.md", text), "markdown")


def test_blocks_without_a_language_count_when_they_launch() -> None:
    assert len(docs("```\nNPROC_PER_NODE=8 xtuner train c.py\n```\n")) == 1
    assert docs("```\nloss 1.0, see torchrun\n```\n") == []
    assert docs("```python\nimport deepspeed\n```\n") == []


def test_files_without_a_launcher_are_not_parsed() -> None:
    assert may_launch(b"#!/bin/bash\ntorchrun a.py\n")
    assert may_launch(b"python train.py \\\n --x")
    assert not may_launch(b"#!/bin/bash\nmake install\n")


def test_assignments_on_one_line_do_not_swallow_the_command_on_the_next() -> None:
    # The grammar makes one command of both lines.
    assert words("A=1 B=2\n# go\n\nrun $A\n") == words("A=1\nrun $A\n") != []


def test_a_branch_that_comes_back_leaves_the_directory_as_it_was() -> None:
    script = "if [ $A == 1 ]; then\n  cd eval/mme\n  make\n  cd ../..\nfi\ntorchrun tools/train.py\n"
    (command,) = docs(f"```bash\n{script}```\n")[0].commands
    assert command.cwd.is_absent


def test_places_are_the_same_by_path_and_span() -> None:
    source = SourceFile("run.sh", "A=1\nfoo $A\n")
    place = source.location(Span(4, 7), "here")
    copy = pickle.loads(pickle.dumps(place))
    assert (copy, hash(copy), copy.region) == (place, hash(place), Region(2, 1, 2, 4))
    assert str(place) == "run.sh:2"
    assert place.labelled("there") != place
    assert place.labelled("there").region == place.region


def test_comments_and_errors_on_demand() -> None:
    source = SourceFile("run.sh", "# one\nfoo 1 # two\necho 'no # comment'\n")
    doc = parse_shell(source)
    assert [source.text[c.start : c.end] for c in doc.comments] == ["# one", "# two"]
    assert doc.errors == ()
    assert parse_shell(SourceFile("run.sh", "foo ((\n")).errors


def test_texts_that_are_equal_share_what_is_read_of_them_and_no_places() -> None:
    text = "foo a\n"
    first, second = (
        parse_shell(SourceFile(name, " " * base + text), text, base) for name, base in (("a", 0), ("b", 3))
    )
    assert first.syntax is second.syntax
    places = [read_invocations(doc, lambda raw: True)[0].words[0].location for doc in (first, second)]
    assert [(p.path, p.span) for p in places] == [("a", Span(0, 3)), ("b", Span(3, 6))]


def test_reading_leaves_no_rings_behind() -> None:
    # Closures and tracebacks that hold themselves are found by the collector only: a sixth of a run once.
    script = 'A=$1\nB="$2/$A"\nif [ "$A" = x ]; then\n  C=$B\nelse\n  C=$3\nfi\ntorchrun --n $A t.py $C\n' * 20
    read_launch_docs(SourceFile("run.sh", script), "shell")
    gc.collect()
    gc.disable()
    try:
        read_launch_docs(SourceFile("run.sh", script + "\n"), "shell")
        assert gc.collect() < 500
    finally:
        gc.enable()


def test_fences_that_others_stand_in() -> None:
    text = (
        "````md\n```bash\na\n```\n````\n~~~sh\n```\nb\n~~~\n- item\n    ```bash\n    c\n\nno item\n```sh\nd\n"
        "> ```bash\ne\n```\n> ```sh\n> f > g\n> ```\n1. ~~~sh\n   h\n"
    )
    found = [(fence.language, fence.text) for fence in fences(text)]
    assert found == [
        ("md", "```bash\na\n```\n"),
        ("sh", "```\nb\n"),
        ("bash", "    c\n\n"),
        ("sh", "d\n> ```bash\ne\n"),
        ("sh", "  f   g\n"),
        ("sh", "   h\n"),
    ]
    assert all(len(fence.text) == fence.span.end - fence.span.start for fence in fences(text))


@pytest.mark.parametrize("part", ["a", "$a", "'a'", '"$a b"', "${a}", "\\\n", "\\ ", "=", '"'])
def test_the_words_of_long_lines_are_found_in_one_go(part: str) -> None:
    for end in ("", "(", '"', "'", "`", " ${"):
        doc = parse_shell(SourceFile("run.sh", "foo " + part * 4_000 + end + "\n"))
        read_invocations(doc, lambda raw: True)


def test_words_end_where_bash_ends_them() -> None:
    text = 'A=\'x y\'z="$B ${C}" aaa2>err 2>&1 "${D:-"$E"}"f\\ g <path to x> <5 or 10> # no\n'
    words = [text[w.start : w.end] for w in simple_command(text, 0).words]
    assert words == ["A='x y'z=\"$B ${C}\"", "aaa2", '"${D:-"$E"}"f\\ g', "<path to x>", "<5 or 10>"]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Train:\n\n    torchrun a.py \\\n        --x 1\n\n    torchrun b.py\n\nDone.\n", 1),
        ("Train:\n\n\ttorchrun a.py\n", 1),
        ("    torchrun a.py\n", 1),
        ("Train:\n    torchrun a.py\n", 0),  # it goes on with the paragraph
        ("```\nx\n\n    torchrun a.py\n```\n", 0),
    ],
)
def test_code_blocks_by_indentation_alone(text: str, blocks: int) -> None:
    found = list(indented_blocks(text, list(fences(text))))
    assert len(found) == blocks
    for block in found:
        assert text[block.span.start : block.span.end] == block.text
        assert "torchrun a.py" in block.text


def test_a_command_in_an_indented_block_is_read() -> None:
    text = "# Model\n\n    deepspeed --num_gpus 4 train.py\n\nIt goes to `out/`.\n\n    Not a command.\n"
    commands = [c for doc in read_launch_docs(SourceFile("README.md", text), "markdown") for c in doc.commands]
    assert [command.launcher for command in commands] == ["deepspeed"]
    place = commands[0].location.span
    assert text[place.start : place.end].startswith("deepspeed --num_gpus 4 train.py")


def test_preformatted_html_is_a_block_of_the_same_length() -> None:
    text = "Run:\n<pre>torchrun <b>train.py</b> --lr 1 </pre>\nand <pre>a &lt; b</pre>\n"
    (block,) = indented_blocks(text, list(fences(text)))
    assert block.text.split() == ["torchrun", "train.py", "--lr", "1"]
    assert len(block.text) == block.span.end - block.span.start
    fenced = "```html\n<pre>torchrun train.py</pre>\n```\n"
    assert list(indented_blocks(fenced, list(fences(fenced)))) == []
