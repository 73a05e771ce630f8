#!/usr/bin/env bash
# Search and evaluation by a scheduler and two executors as processes on 127.0.0.1, compared with one process and with the
# library in memory, and with one executor killed in the middle (SIGKILL). All results must have one hash. Prints a table of
# wall time, CPU time and peak memory of whole processes. Sizes: ROWS, DIMENSIONS, SHARDS, QUERIES; ports from PORT on; COMMANDS, such as "search". Needs GNU time.
set -euo pipefail
cd "$(dirname "$0")/.."

rows=${ROWS:-1000000} dimensions=${DIMENSIONS:-128} shards=${SHARDS:-16} queries=${QUERIES:-10000} port=${PORT:-50150}
cargo build --release --bins --examples
target=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    pids=()
}
trap 'stop; rm -rf "$work"' EXIT
trap "exit 1" INT TERM

"$target/examples/make_shards" "$work" "$rows" "$dimensions" "$shards" "$queries"
files=(--gallery "$work/gallery" --query "$work/queries")

start_cluster() {
    "$target/gallerist-cluster" scheduler --port "$port" --executor-timeout 8 2>"$work/scheduler.log" &
    pids+=($!)
    for executor in 1 2; do
        "$target/gallerist-cluster" executor --scheduler "127.0.0.1:$port" --port $((port + 10 * executor)) \
            --heartbeat 2 --work-dir "$work/executor-$executor" 2>"$work/executor-$executor.log" &
        pids+=($!)
    done
    sleep 3
}

# The peak memory in MiB, and the CPU time in seconds, of a process that runs.
peak() { awk '/VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$1/status"; }
cpu() { awk -v hertz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hertz }' "/proc/$1/stat"; }
all_cpu() { for pid in "${pids[@]}"; do cpu "$pid"; done | awk '{ sum += $1 } END { print sum }'; }

# Runs a command, and keeps its output, wall time, CPU time and peak memory.
measure() {
    /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$target/$1" "${@:2}" >"$work/out" 2>"$work/log" ||
        { cat "$work/log" >&2; return 1; }
    read -r seconds user system memory <"$work/time"
    used=$(awk -v a="$user" -v b="$system" 'BEGIN { print a + b }')
    hash=$(sed -n 's/.*"sha256": "\(.*\)".*/\1/p' "$work/out")
}

row() { printf '| %s | %s | %.1f | %.1f | %s | %s |\n' "$1" "$2" "$seconds" "$used" "$3" "${hash:0:12}"; }

same() { [ "$hash" = "$wanted" ] || { echo "error: the hash of $1 differs: $hash" >&2; exit 1; }; }

echo "| command | where | seconds | CPU seconds | peak MiB | hash |"
echo "| --- | --- | --- | --- | --- | --- |"
for command in ${COMMANDS:-search evaluate}; do
    measure examples/one_machine "$command" "$work/gallery" "$work/queries"
    read -r hash _ <"$work/out"
    wanted=$hash
    row "$command" "library, all rows in memory" "$((memory / 1024))"

    measure gallerist-cluster "$command" "${files[@]}"
    row "$command" "one process" "$((memory / 1024))"
    same "one process"

    start_cluster
    measure gallerist-cluster "$command" "${files[@]}" --cluster "127.0.0.1:$port"
    used=$(awk -v a="$(all_cpu)" -v b="$used" 'BEGIN { print a + b }')
    row "$command" "scheduler and 2 executors" "$(peak "${pids[1]}") and $(peak "${pids[2]}")"
    same "the cluster"

    half=$(awk -v all="$seconds" 'BEGIN { printf "%.1f", all / 2 }')
    before=$(all_cpu)
    (sleep "$half" && cpu "${pids[1]}" >"$work/killed" && kill -KILL "${pids[1]}") &
    killer=$!
    measure gallerist-cluster "$command" "${files[@]}" --cluster "127.0.0.1:$port"
    if kill -0 "$killer" 2>/dev/null; then
        echo "error: the work ended before the executor was killed" >&2
        exit 1
    fi
    used=$(awk -v a="$(cat "$work/killed")" -v b="$(cpu "${pids[0]}")" -v c="$(cpu "${pids[2]}")" -v d="$used" \
        -v before="$before" 'BEGIN { print a + b + c + d - before }')
    row "$command" "the same, one executor killed after $half s" "$(peak "${pids[2]}")"
    same "the cluster with a killed executor"
    stop
done
echo "all hashes are equal"
