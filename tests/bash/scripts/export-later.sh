#!/bin/bash
RANK_OFFSET=8
SECRET=hidden
export RANK_OFFSET
f() { export FROM_FUNCTION=1; }
f
python train.py --offset $RANK_OFFSET
export SECRET=shown
python train.py --second
