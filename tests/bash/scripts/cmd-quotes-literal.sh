#!/bin/bash
# Without eval they are characters.
CMD="deepspeed --num_gpus 2 train.py --name 'two words' --lr 1e-5"
$CMD
RUN="python eval.py --split test --tag a"
$RUN --last
