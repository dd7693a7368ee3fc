"""Scripts that the examples of several rules, or of one rule with many, are made of."""
