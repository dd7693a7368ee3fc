#!/bin/bash
GPUS=0,1
env CUDA_VISIBLE_DEVICES=$GPUS NCCL_DEBUG=WARN deepspeed --master_port 29600 train.py --deepspeed --deepspeed_config ds.json
env -u LD_PRELOAD TOKENIZERS_PARALLELISM=false python -m torch.distributed.run --standalone --nproc_per_node=2 train.py
