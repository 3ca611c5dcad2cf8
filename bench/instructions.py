#!/usr/bin/env python3
"""Instructions per weight and token of every kernel, counted by valgrind, so that a busy computer does not matter.

    cargo build -p tandem-engine --example instructions
    bench/instructions.py target/debug/examples/instructions

Each kernel runs a few times and a few times more; the difference is what the kernel takes. Valgrind knows AVX2 but not AVX-512.
"""

import argparse
import re
import subprocess
import sys

from compare import markdown

# Tokens: generation, and a batch of a prompt.
TOKENS = (1, 64)
RUNS = (2, 6)


def count(program, arguments):
    """Instructions of one run of the program, and the weights times tokens that it says."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)[1].replace(",", "")), float(done.stdout)


def per_weight(program, name, isa, n_tokens):
    """Instructions per weight and token."""
    (few, weights), (more, _) = (count(program, (name, isa, n_tokens, runs)) for runs in RUNS)
    return (more - few) / (RUNS[1] - RUNS[0]) / weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the example `instructions` of the engine")
    parser.add_argument("--isa", default="avx2")
    parser.add_argument("--types", help="such as Q4_K,Q6_K; by default all")
    args = parser.parse_args()
    listed = subprocess.run([args.program], capture_output=True, text=True, check=True).stdout.split("\n")[0].split()
    rows = []
    for name in args.types.split(",") if args.types else listed:
        print(name, file=sys.stderr)
        rows.append([name, "", *(f"{per_weight(args.program, name, args.isa, n):.3f}" for n in TOKENS)])
    print(markdown(["weights", "", *(f"{n} token{'s' * (n > 1)}" for n in TOKENS)], rows))


if __name__ == "__main__":
    main()
