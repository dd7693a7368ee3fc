"""``python -m dslint.probe``, for launchers: ``torchrun --nproc-per-node 4 -m dslint.probe --rule DSL201``."""

from dslint.probe.cluster.command import main

if __name__ == "__main__":
    main()
