#!/bin/bash
NODES=2
GPUS=8
let WORLD=NODES*GPUS
let "BATCH = WORLD * 4"
((PORT = 29500 + NODES))
declare -i STEPS=1000*2
deepspeed --num_gpus $GPUS --master_port $PORT train.py --world $WORLD --batch $BATCH --steps $STEPS
