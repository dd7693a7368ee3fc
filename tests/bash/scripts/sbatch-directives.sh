#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=%x_%j.out
export GPUS_PER_NODE=8
export MASTER_PORT=9901
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$GPUS_PER_NODE --rdzv_id=7 --rdzv_backend=c10d \
     --rdzv_endpoint=localhost:$MASTER_PORT train.py --tasks $SLURM_NTASKS_PER_NODE
