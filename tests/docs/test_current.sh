#!/usr/bin/env bash
# test_current.sh ROOT [soak]: the documents quote what the commands print today; scripts/docs puts it there.
set -euo pipefail
exec "$1/scripts/docs" --check ${2:+--soak}
