#!/bin/bash
NAME="o'neil"
python train.py --name "$NAME" --single '$NOT_EXPANDED "kept"' --joined a'b'"c" --empty '' "" \
  --escaped a\ b\$c \"x\" --hash 'a#b' c#d --eq="x y"=z --star '*' "?" \[a\]
