"""Run by ``test_config_against_deepspeed.py`` in an interpreter that has DeepSpeed: the real parser as a judge.

Reads ``[[config, world size], ...]`` as JSON from the first file, writes ``[[verdict, text], ...]`` to the second.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import warnings


class World:
    """Stands for ``deepspeed.comm``: without it the parser assumes one process, whatever the config says."""

    def __init__(self, real: object) -> None:
        self.real = real
        self.size = 1

    def get_rank(self, group: object = None) -> int:
        return 0

    def get_world_size(self, group: object = None) -> int:
        return self.size

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import deepspeed.runtime.config as parser

    parser.dist = world = World(parser.dist)
    with open(sys.argv[1], encoding="utf-8") as stream:
        cases = json.load(stream)
    verdicts = []
    for config, size in cases:
        world.size = size
        try:
            read = parser.DeepSpeedConfig(copy.deepcopy(config))
            kept = {k: repr(v) for k, v in vars(read).items() if k != "_param_dict" and not repr(v).startswith("<")}
            verdicts.append(["accepted", json.dumps(kept, sort_keys=True)])
        except Exception as error:
            verdicts.append([type(error).__name__, str(error)])
    with open(sys.argv[2], "w", encoding="utf-8") as stream:
        json.dump(verdicts, stream)


if __name__ == "__main__":
    main()
