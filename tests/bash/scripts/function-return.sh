#!/bin/bash
# run:
# run: skip
maybe() {
  if [ "$1" = skip ]; then
    return
  fi
  python prepare.py --full
}
maybe "$1"
deepspeed train.py --deepspeed ds.json
