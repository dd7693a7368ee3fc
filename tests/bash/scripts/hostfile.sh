#!/bin/bash
HOSTFILE=hostfile
printf '%s\n' "node0 slots=8" "node1 slots=8" > $HOSTFILE
deepspeed --hostfile=$HOSTFILE --master_addr node0 --master_port 29501 --include="node0@node1:0,1" train.py --deepspeed ds.json
