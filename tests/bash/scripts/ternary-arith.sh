#!/bin/bash
NODES=4
GPUS=$((NODES > 2 ? 8 : 4))
PORT=$((NODES > 8 ? 29600 : 29500))
USE=$(( NODES >= 2 && GPUS == 8 ))
deepspeed --num_gpus $GPUS --master_port $PORT train.py --flag $USE --blocks $(( (NODES + 2) / 3 ))
