#!/bin/bash
setup() {
  export NCCL_DEBUG=WARN
  GPUS=8
  PORT=29533
}
launch() {
  torchrun --nproc_per_node $GPUS --master_port $PORT "$@"
}
setup
launch train.py --epochs 1
launch eval.py
