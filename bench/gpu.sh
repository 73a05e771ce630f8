#!/bin/sh
# Everything that is to be known of a GPU, by one command; see bench/gpu/README.md.
#
#     bench/gpu.sh                        on a machine with a GPU of NVIDIA
#     bench/gpu.sh --device wgpu          through Vulkan, Metal or Direct3D
#     bench/gpu.sh --device cpu --small   in small, to try the scripts
#
# GALLERIST and GPU_CHECK name the programs where they were built elsewhere; else they are built here first.
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
