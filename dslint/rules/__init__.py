"""The rules: one file each, found through the generated :mod:`dslint.rules.index`."""
