#!/bin/sh
# MPICH and Intel MPI: one muster on each host of the file, which starts the workers there, on all its cores.
#
#   ./mpiexec.sh hosts
exec mpiexec -f "${1:-hosts}" -ppn 1 -bind-to none muster train.py
