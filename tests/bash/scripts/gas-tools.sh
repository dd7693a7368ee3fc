#!/bin/bash
GLOBAL=256
MICRO=4
WORLD=8
GAS=$(echo "$GLOBAL" | awk '{print $1}')
ACC=$(( GLOBAL / MICRO / WORLD ))
LRS=$(expr 2 \* 3 + 1)
deepspeed train.py --gas $ACC --global $GAS --lrs $LRS --train_batch_size=$((MICRO*ACC*WORLD))
