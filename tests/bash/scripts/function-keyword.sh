#!/bin/bash
function log_and_run {
  echo "+ $*"
  "$@"
}
log_and_run torchrun --nproc_per_node 4 train.py --name "a b"
log_and_run python eval.py --ckpt out/last
