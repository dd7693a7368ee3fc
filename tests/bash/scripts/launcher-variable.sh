#!/bin/bash
LAUNCHER="torchrun --nproc_per_node 4 --master_port 29700"
SCRIPT=train.py
$LAUNCHER $SCRIPT --config configs/a.yaml
PYTHON=python3
$PYTHON -m torch.distributed.run --nproc_per_node=2 $SCRIPT --config configs/b.yaml
