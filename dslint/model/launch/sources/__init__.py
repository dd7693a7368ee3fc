"""Files that hold launch commands beside shell scripts: one reader a format, each gives snippets of shell text."""
