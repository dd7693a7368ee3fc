#!/bin/bash
# run: configs/base.py 8
# run: configs/large.py 4 --amp --seed 3
CONFIG=$1
GPUS=$2
PORT=${PORT:-29500}
torchrun --nproc_per_node=$GPUS --master_port=$PORT train.py $CONFIG --launcher pytorch "${@:3}"
