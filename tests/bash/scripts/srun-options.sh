#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=16
PARTITION=llm
JOB=pretrain
GPUS=${GPUS:-16}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
srun -p ${PARTITION} --job-name=${JOB} --gres=gpu:${GPUS_PER_NODE} --ntasks=${GPUS} --ntasks-per-node=${GPUS_PER_NODE} \
    --cpus-per-task=5 --kill-on-bad-exit=1 ${SRUN_ARGS} python -u train.py --launcher="slurm" --tasks $SLURM_NTASKS
