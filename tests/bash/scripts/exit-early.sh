#!/bin/bash
# run:
# run: stop
python first.py --always
if [ "$1" = stop ]; then
  exit 0
fi
python second.py --sometimes
exit 0
python never.py --unreachable
