#!/bin/bash
#SBATCH -N 2
#SBATCH --gpus-per-node=8
IMAGE=/images/pytorch.sqsh
MOUNTS="$PWD:/workspace"
CMD="torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES train.py --bf16"
srun --container-image="$IMAGE" --container-mounts="/data:/data" --no-container-mount-home bash -c "cd /workspace && $CMD"
