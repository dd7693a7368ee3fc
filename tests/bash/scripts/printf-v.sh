#!/bin/bash
RANK=3
printf -v NAME "node-%02d" $RANK
printf -v PORT '%d' 29510
torchrun --nproc_per_node 2 --master_port $PORT train.py --name $NAME --rank $(printf '%03d' $RANK)
