#!/bin/sh
# Correctness and speed on a GPU; see bench/gpu/README.md.
#
#     bench/gpu.sh                        NVIDIA GPUs
#     bench/gpu.sh --device wgpu          GPUs with Vulkan, Metal or Direct3D
#     bench/gpu.sh --device cpu --small   small sizes on the CPU, to try the scripts
#
# If the programs were built elsewhere, GALLERIST and GPU_CHECK are their paths; otherwise they are built first.
set -eu
cd "$(dirname "$0")/.."
feature=cuda
for argument in "$@"; do
    case $argument in
        wgpu*) feature=wgpu ;;
        cpu) feature= ;;
    esac
done
target=${CARGO_TARGET_DIR:-target}/release
if [ -z "${GALLERIST:-}" ] || [ -z "${GPU_CHECK:-}" ]; then
    cargo build --release ${feature:+--features $feature}
    cargo build --release -p gallerist-train --example gpu_check ${feature:+--features $feature}
fi
exec python3 bench/gpu/run.py --gallerist "${GALLERIST:-$target/gallerist}" \
    --gpu-check "${GPU_CHECK:-$target/examples/gpu_check}" "$@"
