"""dslint inside other programs."""
