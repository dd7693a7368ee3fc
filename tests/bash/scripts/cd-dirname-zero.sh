#!/bin/bash
DIR=$(dirname $0)
HERE=$(dirname "$(readlink -f "$0")")
NAME=$(basename "$0" .sh)
deepspeed $DIR/train.py --deepspeed ${DIR}/ds.json --run $NAME --here "$HERE"
cd $(dirname "$0")
python eval.py --split test
