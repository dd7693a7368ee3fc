#!/bin/bash
export NCCL_DEBUG=INFO HF_HOME=/cache
EXTRA="--debug"
unset NCCL_DEBUG EXTRA
deepspeed train.py --home $HF_HOME $EXTRA --x ${EXTRA:-none}
