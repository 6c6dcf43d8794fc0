#!/bin/sh
# Every C++ file is formatted as .clang-format says. To mend: clang-format-19 -i FILE.
cd "$(dirname "$0")/../.." || exit 2
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is missing: apt-get install clang-format-19"; exit 1; }
find agent examples launcher rendezvous tests worker_lib -name '*.h' -o -name '*.cc' | xargs clang-format-19 --dry-run --Werror
