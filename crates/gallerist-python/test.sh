#!/usr/bin/env bash
# Builds the wheel, installs it with the programs that it is compared with into a new virtual environment, and runs the
# tests and the notebook. The environment takes about 6 GB, most of it PyTorch; it is removed at the end.
set -euo pipefail
cd "$(dirname "$0")"

environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
unavailable() {
    echo "warning: $1 cannot be installed here" >&2
    [ "${GALLERIST_REQUIRE_PYTHON:-1}" != 1 ] || exit 1
    exit 0
}
install() { "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"; }

python3 -m venv "$environment" || unavailable "a virtual environment"
install 'maturin>=1.9,<2' || unavailable "maturin"
"$environment/bin/maturin" build --release --quiet --out "$environment/wheels"
wheel=$(echo "$environment"/wheels/*.whl)
bytes=$(wc -c <"$wheel")
echo "wheel: $((bytes / 1000000)) MB"
[ "$bytes" -lt 25000000 ] || { echo "error: the wheel must stay below 25 MB" >&2; exit 1; }
install "$wheel[test]" || unavailable "what the tests need"
# From another folder, so that the installed package is tested and not the sources.
tests=$PWD
cd "$environment"
bin/python -m pytest --quiet --import-mode=importlib --rootdir "$tests" "$tests/tests"
bin/python -m pytest --quiet --nbmake --rootdir "$tests" "$tests/examples"
