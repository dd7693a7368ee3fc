#!/bin/bash
A=1; B=2; python a.py $A $B; python b.py "$A;$B"
if true; then python c.py --in if; fi; for i in x; do python d.py --fixed; done
