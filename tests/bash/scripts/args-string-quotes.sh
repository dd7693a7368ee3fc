#!/bin/bash
# Quotes inside a string of options are no quotes any more.
ARGS="--name 'two words' --pattern \"x y\""
python train.py $ARGS --ok
python train.py "$ARGS"
