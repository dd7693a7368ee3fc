"""Which versions of the libraries a project runs with, from the files that say so."""
