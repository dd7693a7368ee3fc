#!/bin/bash
FORCE_TORCHRUN=1 NNODES=1 llamafactory-cli train examples/train_full/llama3_full_sft.yaml
FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 llamafactory-cli train \
  --stage sft --do_train True --dataset alpaca_en_demo --deepspeed cache/ds_z3.json
