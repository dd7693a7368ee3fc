"""What stands where in a script, for the old reader: see :mod:`dslint.parse.tree`."""

from dslint.parse.tree import SCOPES, Loop, Tree, block_of_one_turn, child_fields

__all__ = ["SCOPES", "Loop", "Tree", "block_of_one_turn", "child_fields"]
