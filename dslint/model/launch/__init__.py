"""Launch commands: what each launcher starts, on how many nodes, with which script and arguments."""
