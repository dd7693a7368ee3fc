#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
CMD="python train.py --lr 0.1 --epochs 90"
export LAUNCHER="python -m torch.distributed.run --nproc_per_node 4 --nnodes $SLURM_NNODES"
srun $CMD
srun --jobid $SLURM_JOBID bash -c "$LAUNCHER $CMD"
srun bash -c "$LAUNCHER train.py --stage 2"
