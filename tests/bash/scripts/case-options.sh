#!/bin/bash
# run: --zero 3 --model opt --offload
# run: --model=bert
STAGE=2
OFFLOAD=
while [[ $# -gt 0 ]]; do
  case $1 in
    --zero) STAGE="$2"; shift; shift ;;
    --model) MODEL="$2"; shift 2 ;;
    --model=*) MODEL="${1#*=}"; shift ;;
    --offload) OFFLOAD=1; shift ;;
    *) echo "unknown $1"; exit 1 ;;
  esac
done
deepspeed train.py --model "$MODEL" --stage $STAGE ${OFFLOAD:+--offload} --bf16
