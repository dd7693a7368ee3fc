#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
export WORLD_SIZE=$((SLURM_NNODES * 8))
export MASTER_PORT=29500
srun --output=logs/%j.out python -m train.main --world $WORLD_SIZE --port $MASTER_PORT
