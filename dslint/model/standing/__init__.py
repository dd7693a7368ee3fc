"""How a name or an argument of a library stands in the releases that a project may run with."""
