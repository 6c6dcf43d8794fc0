#!/bin/sh
# Open MPI: one muster on each host of the file, which starts the workers there. Without --bind-to none mpirun would bind
# muster to a core, and all workers of a node would share that core.
#
#   ./mpirun.sh hosts
exec mpirun --hostfile "${1:-hosts}" -N 1 --bind-to none muster train.py
