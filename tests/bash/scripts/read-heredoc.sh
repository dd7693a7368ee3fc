#!/bin/bash
LR=1e-5
read -r -d '' COMMAND <<EOF
train_sft.py \
   --lr $LR \
   --bf16
EOF
deepspeed --num_gpus 8 $COMMAND
