#!/usr/bin/env bash
# pack_torch_check.sh FOLDER BUILD: puts gradsieve-torch-check into a bundle that pack_bundle.sh made with BUILD's gradsieved, with what it
# needs of Python: the package, its tests' helpers and the library. The host has its own python3 with PyTorch.
set -euo pipefail

(($# == 2)) || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
bundle=$1 build=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$bundle/tree
mkdir -p "$tree/python" "$tree/tests/python" "$tree/tests/gpu" "$tree/build/daemon"
cp -r "$source/python/gradsieve" "$tree/python/"
cp -r "$source/tests/gpu/torch" "$tree/tests/gpu/"
cp "$source"/tests/python/{python_cluster,rank_main,torch_net,torch_ranks,torch_batches_ranks}.py "$tree/tests/python/"
cp -L "$build/client/libgradsieve.so" "$tree/build/"
ln -sfn ../../../bin/gradsieved "$tree/build/daemon/gradsieved"
find "$tree" -name __pycache__ -type d -prune -exec rm -rf {} +
ln -sfn ../tree/tests/gpu/torch/gradsieve-torch-check "$bundle/bin/gradsieve-torch-check"
cat >>"$bundle/env.sh" <<'END'
export GRADSIEVE_BUILD=$bundle/tree/build GRADSIEVE_LIBRARY=$bundle/tree/build/libgradsieve.so
END
