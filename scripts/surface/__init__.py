"""What ``scripts/generate_surface.py`` is made of: from files of releases to ``schemas/surface``."""
