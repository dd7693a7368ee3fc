"""What a script does, read from its CST: names, constants, rank guards, collectives, call summaries."""
