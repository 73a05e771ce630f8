#!/usr/bin/env bash
# The page in a real browser: `run.sh PROGRAM SCREENSHOTS`. PROGRAM is the built `gallerist`; the screenshots of every
# view are left in the folder SCREENSHOTS. Chromium comes from the system or from Debian's package, Playwright from
# PyPI into a folder that is thrown away. Where they cannot be had the test is skipped and says so; with
# GALLERIST_REQUIRE_BROWSER=1 it fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "${1:?the program gallerist}")
out=${2:?a folder for the screenshots}
mkdir -p "$out"

skip() {
    echo "warning: the page is NOT TESTED in a browser: $1" >&2
    [ "${GALLERIST_REQUIRE_BROWSER:-0}" = 1 ] && exit 1
    exit 0
}

find_chromium() {
    local name
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
        if [ -n "$name" ] && command -v "$name"; then return; fi
    done
    return 1
}

if ! chromium=$(find_chromium); then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >&2 ||
            echo "warning: apt-get could not install chromium" >&2
    fi
    chromium=$(find_chromium) || skip "there is no Chromium (apt-get install chromium, or set CHROMIUM)"
fi

if ! python3 -c 'import playwright' 2>/dev/null; then
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check playwright==1.65.2; } >&2 ||
        skip "Playwright cannot be installed from PyPI"
    PATH="$venv/bin:$PATH"
fi

python3 "$here/test.py" --program "$program" --chromium "$chromium" --out "$out"
