"""One reader of Python: source, modules, values, interpretation, events, and the questions that rules ask."""
