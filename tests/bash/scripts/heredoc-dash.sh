#!/bin/bash
if true; then
	cat > hostfile <<-EOF
		node0 slots=8
		node1 slots=8
	EOF
fi
deepspeed --hostfile hostfile train.py --deepspeed ds.json
