#!/bin/bash
export NCCL_DEBUG=WARN
export OMP_NUM_THREADS=4
NCCL_DEBUG=INFO torchrun --nproc_per_node 2 a.py
torchrun --nproc_per_node 2 b.py
OMP_NUM_THREADS= python c.py --empty variable
