"""``dslint server``: what editors ask over the language server protocol, answered from the engine."""
