"""What several experiments build on: tiny models, engines, trainers. Arms import from here inside their functions."""
