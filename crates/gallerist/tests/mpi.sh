#!/usr/bin/env bash
# The tests of training by several MPI processes. Open MPI and libclang, which the bindings need, are those of the system
# or Debian's packages. Where they cannot be had the tests are skipped and it says so; with GALLERIST_REQUIRE_MPI=1 it
# fails.
set -euo pipefail
cd "$(dirname "$0")/../../.."

there() { command -v mpirun >/dev/null && command -v mpicc >/dev/null; }

if ! there && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends libopenmpi-dev openmpi-bin libclang-dev; } >&2 ||
        echo "warning: apt-get could not install Open MPI" >&2
fi
if ! there; then
    echo "warning: training over MPI is NOT TESTED: there is no Open MPI (apt-get install libopenmpi-dev openmpi-bin libclang-dev)" >&2
    [ "${GALLERIST_REQUIRE_MPI:-0}" = 1 ] && exit 1
    exit 0
fi
# The test of databases needs no server here: it reads what a program without them says, and CI builds no other such program.
cargo test --release -p gallerist --features mpi --test mpi --test database
