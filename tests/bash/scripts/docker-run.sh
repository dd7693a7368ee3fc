#!/bin/bash
IMAGE=nvcr.io/nvidia/pytorch:24.05-py3
NAME=train
docker run --gpus all --rm -v $PWD:/workspace -w /workspace -e NCCL_DEBUG=INFO $IMAGE \
  torchrun --nproc_per_node 8 train.py --name $NAME
docker run --rm --ipc=host $IMAGE bash -c "pip install -e . && deepspeed --num_gpus 4 train.py --name $NAME"
