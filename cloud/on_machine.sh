#!/usr/bin/env bash
# On a rented machine, in the project's folder: install, pull, reproduce, push.
#   cloud/on_machine.sh <minutes> [<ledger of what was spent before>]
# `dvc repro` is ended so many minutes from now. What it finished is pushed all the same.
set -euo pipefail
minutes=${1:?"say after how many minutes dvc repro is to end"}
[[ $minutes =~ ^[1-9][0-9]*$ ]] || { echo "error: minutes: '$minutes' is not a whole number above 0" >&2; exit 2; }

if [[ -n ${2:-} && ! -e .scratch/ledger.jsonl ]]; then
  mkdir -p .scratch
  cp "$2" .scratch/ledger.jsonl
fi

# Images of GPU providers often have an older Python; uv brings its own.
python=python3
if ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  export PATH="$HOME/.local/bin:$PATH"
  command -v uv >/dev/null || python3 -m pip install --quiet --user uv
  uv python install 3.12
  python=$(uv python find 3.12)
fi
make setup PYTHON="$python"
export PATH="$PWD/.venv/bin:$PATH" DVC_NO_ANALYTICS=1 MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
dvc pull --run-cache --allow-missing
status=0
# TERM makes the trainer save; what ignores it is killed five minutes later.
timeout --signal=TERM --kill-after=5m "$((minutes * 60 - SECONDS))s" dvc repro || status=$?
dvc push --run-cache
((status)) || python -m x1_pretrain.report.html
exit "$status"
