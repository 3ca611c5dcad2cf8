#!/usr/bin/env bash
# Times Tandem's downloads against `aria2c -x8` and `curl`, on loopback, from the test hub.
#
#   bench/downloads/run.sh [MIB] [ROUNDS]      default: 1024 MiB, 7 rounds
#
# Each round fetches the same file once with each program, in turn, so that whatever else loads the machine loads all of
# them. `fetch` is the program alone; `checked` adds `sha256sum` for aria2c and curl, which do not know the hash: Tandem
# has compared it when it is done. `checked+` adds `sha256sum` to Tandem too. Printed are medians and their ratios to
# Tandem's; above 1 the other is slower.
#
# WORK chooses where files go. On a disk, `synced` is what counts: Tandem flushes the file before it gives it its name,
# the others are followed by `sync FILE`. The hub serves from memory; `hub` is what it gives to two curls at once that
# throw everything away, in MiB/s: well above every other rate, or it is the hub that is measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
mib=${1:-1024} rounds=${2:-7}
work=$(mktemp -d "${WORK:-/dev/shm}/tandem-bench.XXXXXX")
for program in aria2c curl openssl sha256sum; do command -v "$program" >/dev/null || { echo "$program is not installed" >&2; exit 2; }; done

# Built as a release is, but for link-time optimisation.
target=${CARGO_TARGET_DIR:-target}
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  cargo build --quiet --release -p tandem-tests --bin tandem-test-download --bin tandem-test-hub
download=$target/release/tandem-test-download

mkdir "$work/repo"
head -c "$((mib * 1024 * 1024))" /dev/zero |
  openssl enc -aes-128-ctr -nosalt -K 00112233445566778899aabbccddeeff -iv 00000000000000000000000000000000 >"$work/repo/m-Q8_0.gguf"
"$target/release/tandem-test-hub" --no-demo --in-memory --repo "a/b=$work/repo" >"$work/url" &
hub=$!
trap 'kill $hub 2>/dev/null; rm -rf "$work"' EXIT
until [ -s "$work/url" ]; do read -rt 0.1 <> <(:) || :; done
url=$(<"$work/url")/a/b/resolve/main/m-Q8_0.gguf
wanted=$(sha256sum <"$work/repo/m-Q8_0.gguf")
rm -r "$work/repo"

now() { date +%s.%N; }
# Runs a program and appends its time to a file.
timed() { local log=$1 from; shift; from=$(now); "$@"; awk -v a="$from" -v b="$(now)" 'BEGIN { print b - a }' >>"$work/$log"; }
check() { [ "$(sha256sum <"$1")" = "$wanted" ] || { echo "$1: wrong bytes" >&2; exit 1; }; }
twice() { curl -sLo /dev/null "$url" & curl -sLo /dev/null "$url"; wait $!; }
with_tandem() { "$download" "$(<"$work/url")" a/b "$work/t" --report-every-ms 250 >/dev/null; }
with_aria2c() { aria2c -q -x8 -s8 -k1M --file-allocation=falloc -d "$work/t" -o f "$url"; }
with_curl() { curl -sL --create-dirs -o "$work/t/f" "$url"; }

timed hub twice
for ((round = 0; round < rounds; round++)); do
  for program in tandem aria2c curl; do
    timed "$program.fetch" "with_$program"
    file=$(find "$work/t" -name '*.gguf' -o -name f)
    timed "$program.sync" sync "$file"
    timed "$program.sha" check "$file"
    rm -r "$work/t"
  done
done

paste "$work"/{tandem,aria2c,curl}.{fetch,sync,sha} | awk -v mib="$mib" -v hub="$(<"$work/hub")" '
  function median(values, n,   i, j, swap) {
    for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (values[j] < values[i]) { swap = values[i]; values[i] = values[j]; values[j] = swap }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
  }
  { for (p = 0; p < 3; p++) { f = $(3 * p + 1); y = $(3 * p + 2); s = $(3 * p + 3)
      fetch[p, NR] = f; checked[p, NR] = p ? f + s : f; both[p, NR] = f + s; synced[p, NR] = p ? f + y + s : f } }
  function of(table, p,   i, column) { for (i = 1; i <= NR; i++) column[i] = table[p, i]; return median(column, NR) }
  function row(name, table,   p, base) {
    base = of(table, 0); printf "%-9s", name
    for (p = 0; p < 3; p++) printf "  %6.2f s %5.2fx", of(table, p), of(table, p) / base
    print ""
  }
  END {
    printf "%d MiB, %d rounds, medians; hub %d MiB/s\n%-9s  %15s  %15s  %15s\n", mib, NR, 2 * mib / hub, "", "tandem", "aria2c -x8", "curl"
    row("fetch", fetch); row("checked", checked); row("checked+", both); row("synced", synced)
  }'
