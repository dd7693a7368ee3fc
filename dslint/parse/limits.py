"""How much input dslint reads before it says that a file is not what it is for."""

# A training script or config of this size does not exist; data files do.
MAX_BYTES = 5_000_000
# DeepSpeed configs nest 5 deep; the interpreter's recursion limit is far above this.
MAX_DEPTH = 200
