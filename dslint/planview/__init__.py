"""``dslint plan``: shows what a launch command will run, as text, JSON or a graph."""
