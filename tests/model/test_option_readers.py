"""Scripts whose options are read by a file that they source: Kaldi's ``parse_options.sh``."""

from __future__ import annotations

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs

_RUN = """\
#!/bin/bash
stage=0
stop_stage=2
config=conf/a.json
. %s || exit 1
if [ $stage -le 4 ] && [ $stop_stage -ge 4 ]; then
  torchrun --nproc_per_node 4 train.py --deepspeed_config ${config}
fi
"""


def commands(text: str) -> list[LaunchCommand]:
    return [command for doc in read_launch_docs(SourceFile("run.sh", text), "shell") for command in doc.commands]


@pytest.mark.parametrize("path", ["tools/parse_options.sh", "./utils/parse_options.sh", "parse_options.sh"])
def test_variables_keep_their_defaults_where_options_may_replace_them(path: str) -> None:
    found = commands(_RUN % path)
    assert {command.script_args[-1].text for command in found} == {"conf/a.json"}


def test_another_file_that_is_not_here_may_set_any_variable() -> None:
    found = commands(_RUN % "tools/settings.sh")
    assert {command.script_args[-1].text for command in found} == {None}
