#!/usr/bin/env bash
# Packs the study for a host that has an NVIDIA driver and a Python with torch and numpy, and nothing of this project:
#
#   pack_fidelity.sh FOLDER LIBRARY [RESULTS]
#
# FOLDER/run.sh SECONDS OUTPUT [WORKERS] does as many runs there as fit into the time, and leaves them as lines of JSON in OUTPUT.
# What lies in FOLDER/results (from RESULTS, or put there later) is not done again.
set -euo pipefail
(($# >= 2)) || { sed -n '2,7p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 library=$2 results=${3-}
mkdir -p "$folder"/{bench/fidelity,data/fashion-mnist,data/perl-doc,results}
cp "$here"/*.py "$folder/bench/fidelity/"
cp -L "$library" "$folder/libgradsieve-fidelity.so"
cp /usr/share/datasets/fashion-mnist/*.gz "$folder/data/fashion-mnist/"
cp /usr/share/perl/5.*.*/pod/perl*.pod "$folder/data/perl-doc/"
[[ -z $results ]] || cp "$results"/*.jsonl "$folder/results/"
cat >"$folder/run.sh" <<'RUN'
#!/usr/bin/env bash
# run.sh SECONDS OUTPUT [WORKERS] [OPTION...]: options are those of `./dev bench fidelity`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
seconds=$1 output=$2 workers=${3:-$(($(nproc) > 1 ? $(nproc) - 1 : 1))}
shift $(($# < 3 ? $# : 3))
earlier=()
compgen -G "$here/results/*.jsonl" >/dev/null && earlier=(--from "$here/results")
export PYTHONPATH="$here/bench" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
mkdir -p "$output"
ends=()
trap 'for end in "${ends[@]}"; do eval "$end"; done' EXIT
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.used --format=csv -l 10 >"$output/gpu.csv" 2>&1 &
    ends+=("kill $!")
fi
# FIDELITY_MPS=1: processes share the GPU at the same time instead of in turn, where the host has what that takes.
if [[ ${FIDELITY_MPS-} == 1 ]] && command -v nvidia-cuda-mps-control >/dev/null; then
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    nvidia-cuda-mps-control -d
    ends+=("echo quit | timeout 10 nvidia-cuda-mps-control")
    timeout 60 "${PYTHON:-python3}" -c 'import torch; torch.zeros(1, device="cuda")' || unset CUDA_MPS_PIPE_DIRECTORY
fi
"${PYTHON:-python3}" -m fidelity.main --deadline "$seconds" --output "$output" --workers "$workers" --data "$here/data" \
    --library "$here/libgradsieve-fidelity.so" "${earlier[@]}" "$@"
RUN
chmod +x "$folder/run.sh"
du -sh "$folder"
