#!/usr/bin/env bash
# Everything that a real NVIDIA card can tell, in under ten minutes: the tests that compare a card's results with the processor's,
# this time with the driver of this machine; then speed at several placements. Nobody has run it yet.
#
#     bench/gpu.sh SMOLLM2.gguf GEMMA.gguf [LLAMA-BENCH]
#
# Build before, so that the time is the card's: cargo build --release -p tandem-cli && cargo test -p tandem-engine --no-run
# What it prints goes into docs/, with card, driver and both versions: they stand in its first lines.
set -euo pipefail
smollm2=$1 gemma=$2 rival=${3:-}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free,compute_cap --format=csv
git describe --always --dirty
[ -z "$rival" ] || "$rival" --version || true

export TANDEM_REAL_GPU=1
failed=0
timeout 150 cargo test -p tandem-engine --test cuda -- --nocapture || failed=1
timeout 120 cargo test -p tandem-engine --lib ops::tests || failed=1

cargo run --release -p tandem-engine --example synthetic -- "$work/synthetic-30b-a3b.gguf"
tandem=target/release/tandem
measure() {
  echo "== $(basename "$1") ${*:2}"
  timeout 60 "$tandem" bench "$1" "${@:2}" || failed=1
}
for model in "$smollm2" "$gemma"; do
  for layers in 0 8 99; do measure "$model" -r 3 --gpu-layers "$layers"; done
  [ -z "$rival" ] || timeout 40 "$rival" -m "$model" -ngl 99 -p 512 -n 128 || failed=1
done
synthetic=$work/synthetic-30b-a3b.gguf
measure "$synthetic" -r 1 -p 128 -n 32
measure "$synthetic" -r 1 -p 128 -n 32 --gpu-layers 99 --cpu-moe
for layers in 12 24 99; do measure "$synthetic" -r 1 -p 128 -n 32 --gpu-layers "$layers"; done
exit $failed
