#!/bin/bash
CONFIG=configs/deepspeed/zero3_offload.json
NAME=$(basename $CONFIG .json)
NAME2=`basename "$CONFIG"`
FOLDER=$(dirname "$CONFIG")
UP=$(dirname $(dirname "$CONFIG"))
deepspeed train.py --deepspeed "$CONFIG" --run "$NAME" --file $NAME2 --folder $FOLDER/extra --up $UP
