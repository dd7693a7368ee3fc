#!/bin/bash
mkdir -p out && python prepare.py --out out && torchrun --nproc_per_node 2 train.py --data out
[ -f missing.json ] || python make_config.py --stage 2
false || EXTRA=--fallback
true && MODE=fast
deepspeed train.py $EXTRA --mode $MODE; python done.py
! python check.py --quiet
