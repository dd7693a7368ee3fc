#!/bin/bash
mkdir -p logs
2>logs/a.err torchrun --nproc_per_node 2 a.py --x 1 >logs/a.out
python b.py --y 2 >logs/b.log 2>&1 </dev/null --after redirect
deepspeed c.py &>>logs/c.log --deepspeed ds.json
exec 3>logs/extra.log
python d.py --z 3 >&3
