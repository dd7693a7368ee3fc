#!/bin/bash
export OMP_NUM_THREADS=$(nproc)
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
srun torchrun --nnodes 2 --nproc_per_node 4 --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" train.py --bf16
