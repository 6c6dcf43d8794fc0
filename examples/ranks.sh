#!/bin/sh
# The smallest job: every rank says who it is. On the first attempt rank 2 fails, so that the launcher's verdict on
# it and the restart can be seen:
#
#   muster --nproc-per-node 4 --max-restarts 1 examples/ranks.sh
echo "rank $RANK of $WORLD_SIZE, local rank $LOCAL_RANK, attempt $TORCHELASTIC_RESTART_COUNT; rank 0 listens on $MASTER_ADDR:$MASTER_PORT"
if [ "$RANK" = 2 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  echo "rank 2: no space left in my head" >&2
  exit 3
fi
sleep 0.2
