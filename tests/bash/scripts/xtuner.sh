#!/bin/bash
GPUS=8
CONFIG=internlm2_7b_qlora_oasst1_e3
NPROC_PER_NODE=$GPUS xtuner train $CONFIG --deepspeed deepspeed_zero2 --work-dir work/$CONFIG
srun -p llm --gres=gpu:8 --ntasks=8 --ntasks-per-node=8 xtuner train $CONFIG --launcher slurm --deepspeed deepspeed_zero3
