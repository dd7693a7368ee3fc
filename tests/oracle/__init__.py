"""An oracle for divergence: random programs, executed once for each rank, and what dslint says about them."""
