#!/bin/bash
declare -x NCCL_P2P_DISABLE=1
declare -rx OMP_NUM_THREADS=8
typeset -x MASTER_ADDR=127.0.0.1
readonly MASTER_PORT=29511
export MASTER_PORT
declare -i GPUS=8
torchrun --nproc_per_node=$GPUS --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT main.py --amp
