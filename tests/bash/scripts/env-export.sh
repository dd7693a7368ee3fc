#!/bin/bash
export NCCL_DEBUG=INFO
export NCCL_IB_DISABLE=0 NCCL_SOCKET_IFNAME=eth0
export CUDA_DEVICE_MAX_CONNECTIONS=1
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export PYTORCH_CUDA_ALLOC_CONF
export WANDB_PROJECT="sft runs"
HIDDEN=not-exported

torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --seq-length 4096
