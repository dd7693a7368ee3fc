#!/bin/bash
export PYTHONPATH=src
PYTHONPATH+=:lib
export PYTHONPATH="$PYTHONPATH:plugins"
NAME=run
NAME+=_1
NAME+="_b c"
python train.py --name "$NAME" --split $NAME
