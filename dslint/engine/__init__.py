"""From paths to findings: files are found, read, judged and mended (ARCHITECTURE.md, "A run")."""
