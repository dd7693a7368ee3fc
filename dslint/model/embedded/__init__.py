"""DeepSpeed configs that stand inside other files: YAML, dict displays in Python, heredocs in shell scripts."""
