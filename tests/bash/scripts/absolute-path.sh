#!/bin/bash
PY=/opt/conda/bin/python
/opt/conda/bin/python train.py --a 1
$PY -m torch.distributed.run --nproc_per_node 2 train.py --a 2
/usr/local/bin/deepspeed --num_gpus 2 train.py --a 3
