#!/bin/bash
#SBATCH -N 2
GPUS=4
PORT=29544
srun --kill-on-bad-exit=1 bash -c 'torchrun --nproc_per_node 4 --node_rank $SLURM_PROCID train.py --quoted single'
srun bash -c "torchrun --nproc_per_node $GPUS --master_port $PORT train.py --quoted double"
srun bash -c "
  export NCCL_DEBUG=WARN
  torchrun --nproc_per_node $GPUS train.py --lines many
"
