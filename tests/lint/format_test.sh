#!/bin/sh
# Checks that .clang-format formats every C++ file as it stands. To correct one: clang-format-19 -i FILE.
cd "$(dirname "$0")/../.." || exit 2
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is missing: apt-get install clang-format-19"; exit 1; }
find agent examples launcher rendezvous tests worker_lib -name '*.h' -o -name '*.cc' | xargs clang-format-19 --dry-run --Werror
