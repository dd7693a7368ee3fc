"""The other files of a project: what an import means there, which of its functions may wait."""
