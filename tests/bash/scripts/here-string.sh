#!/bin/bash
read -r HOST PORT <<< "127.0.0.1 29509"
IFS=: read -r A B <<< "x:y"
torchrun --nproc_per_node 2 --master_addr $HOST --master_port $PORT train.py --a $A --b $B
