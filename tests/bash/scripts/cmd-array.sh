#!/bin/bash
CMD=(torchrun --nproc_per_node 4)
CMD+=(train.py --name "a b")
[ -n "$DEBUG" ] && CMD+=(--debug)
echo "${CMD[@]}"
"${CMD[@]}"
"${CMD[@]}" --resume last
