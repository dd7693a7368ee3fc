#!/bin/bash
source ~/miniconda3/etc/profile.d/conda.sh
conda activate train
LR=2e-5
conda run -n train python train.py --lr $LR
deepspeed --num_gpus 8 train.py --lr $LR --deepspeed ds.json
