#!/bin/bash
# Defaults that use other defaults.
ROOT=${ROOT:-/data}
CKPT=${CKPT:-$ROOT/ckpt/${TAG:-latest}}
LR=${LR:-${BASE_LR:-1e-4}}
EMPTY=""
deepspeed --num_gpus ${GPUS:-4} train.py --ckpt "$CKPT" --lr $LR --a "${EMPTY:-was empty}" --b "${EMPTY-kept}" ${EMPTY:+--never}
