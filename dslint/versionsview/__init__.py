"""``dslint versions``: the releases of libraries that a project can run with."""
