"""``dslint facts``: what the interpreter believes at a place of a script."""
