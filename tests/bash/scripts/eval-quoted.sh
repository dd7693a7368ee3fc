#!/bin/bash
NAME="two words"
CMD="torchrun --nproc_per_node 2 train.py --name \"$NAME\" --tag 'x y'"
eval "$CMD"
SECOND='python eval.py --home fixed --cost $((2 + 3))'
eval $SECOND
