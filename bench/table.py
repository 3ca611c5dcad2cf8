#!/usr/bin/env python3
"""The whole table of speeds: files of every kind of weights against llama.cpp and ik_llama.cpp, with what was aimed at.

    bench/table.py --models DIR --rival llama.cpp=…/llama-bench --rival "llama.cpp+plain=…/llama-bench --repack 0" \\
                   --rival "ik=…/llama-bench -rtr 1 -fmoe 1" > docs/speed.md

Looks into DIR, and its folders, for the files that `ROWS` names by pattern; a row without a file is said to be missing. Takes
about 25 minutes on a quiet computer of two cores. Options are those of `compare.py`.
"""

import argparse
import fnmatch
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import compare
from compare import OURS, Setting, Test


@dataclass(frozen=True)
class Row:
    """Files by pattern, tests, and the least ratio that is aimed at: a pair (rival or "best", ratio) per kind of test."""

    pattern: str
    tests: str
    targets: dict
    cache: tuple = ("f16",)
    busy: tuple = (0,)
    # Long ones are measured once, whatever was asked for.
    most_rounds: int = 99


PLAIN = "pp512,tg128"
ROWS = [
    Row("*qwen3moe*Q4_K_M*", PLAIN, {"tg": ("best", 1.4), "pp": ("best", 1.15)}),
    Row("*q*35*", PLAIN, {"tg": ("best", 1.4), "pp": ("best", 1.15)}),
    Row("*llama1b*Q4_K_M*", PLAIN, {"tg": ("best", 1.4), "pp": ("best", 1.5)}),
    Row("*llama1b*Q6_K*", PLAIN, {"tg": ("llama.cpp", 2.5), "pp": ("best", 1.0)}),
    Row("*llama1b*Q2_K*", PLAIN, {"tg": ("llama.cpp", 1.8), "pp": ("best", 1.0)}),
    Row("*llama1b*Q8_0*", PLAIN, {"tg": ("llama.cpp", 1.1), "pp": ("best", 1.0)}),
    Row("*llama1b*IQ4_XS*", PLAIN, {"tg": ("best", 1.2), "pp": ("best", 1.2)}),
    Row("*llama1b*Q4_0*", PLAIN, {"tg": ("best", 1.2), "pp": ("best", 1.2)}),
    Row("*llama1b*Q5_K_M*", PLAIN, {"tg": ("best", 1.2), "pp": ("best", 1.2)}),
    Row("*llama1b*MXFP4*", PLAIN, {"tg": ("best", 1.2), "pp": ("best", 1.2)}),
    Row("*llama1b*IQ3_XXS*", PLAIN, {"tg": ("best", 1.2), "pp": ("best", 1.2)}),
    Row("*SmolLM2*Q4_1*", PLAIN, {"tg": ("best", 1.0), "pp": ("best", 1.0)}),
    Row("*gemma-3-270m*", PLAIN, {"tg": ("best", 1.0), "pp": ("best", 1.0)}),
    Row("*qwen3moe*Q4_K_M*", "tg32@8192", {"tg": ("best", 1.3)}, cache=("f16", "q8_0"), most_rounds=1),
    Row("*llama1b*Q4_K_M*", "tg64", {"tg": (OURS, 0.6)}, busy=(1,)),
    Row("*llama1b*Q4_K_M*", "tg64", {"tg": (OURS, 0.4)}, busy=(2,)),
]


def find(folders, pattern):
    """The first file of a pattern, by name."""
    files = [file for folder in folders for file in sorted(folder.rglob("*.gguf"))]
    return next((file for file in files if fnmatch.fnmatch(file.name, pattern)), None)


def run(args, programs):
    """Measures every row; rounds outside, so that rows share good and bad times alike. Yields (row, file, results)."""
    found = [(row, find(args.models, row.pattern)) for row in ROWS if fnmatch.fnmatch(row.pattern, args.only)]
    results = [compare.Results() for _ in found]
    for turn in range(args.rounds):
        for (row, file), own in zip(found, results):
            if file is None or turn >= row.most_rounds:
                continue
            tests = [Test.parse(test) for test in row.tests.split(",")]
            # Its own quiet figure stands beside what is measured on a busy computer, which rivals need not be tortured with.
            is_busy = row.busy != (0,)
            busy = (0, *row.busy) if is_busy else (0,)
            settings = [Setting(args.threads, cache, args.isa, n) for cache in row.cache for n in busy]
            ordered = programs[:1] if is_busy else programs[turn % len(programs) :] + programs[: turn % len(programs)]
            compare.note(f"round {turn + 1} of {args.rounds}: {row.pattern} {row.tests}")
            compare.measure(ordered, [file], tests, settings, 1, own)
    return [(row, file, own) for (row, file), own in zip(found, results)]


def judge(row, setting, test, cells, quiet):
    """The ratio that the row's target speaks of, the target, and whom it is against."""
    against, target = row.targets.get(test.kind, (None, None))
    ours = cells[OURS].median if OURS in cells else None
    if against == OURS:
        other = quiet
    elif against == "best":
        other = max((cell.median for name, cell in cells.items() if name != OURS), default=None)
    else:
        other = compare.best_of(cells, against) if against else None
    return (ours / other if ours and other else None), target, "own quiet figure" if against == OURS else against


def rows_of(measured, programs):
    """Heads and rows of the table."""
    names = [program.name for program in programs]
    heads = ["file", "test", *names, "of read", "ratio", "target", "against", ""]
    rows = []
    for row, file, results in measured:
        if file is None:
            rows.append([row.pattern.strip("*"), "no such file", *("" for _ in names), "", "", "", "", "missing"])
            continue
        for (name, setting, test), cells in results.cells.items():
            if setting.busy not in row.busy:
                continue
            quiet = results.median(file, Setting(setting.threads, setting.cache, setting.isa), test, OURS)
            ratio, target, against = judge(row, setting, test, cells, quiet)
            label = compare.label(setting)
            rows.append([
                name.removesuffix(".gguf"), str(test) if label == "plain" else f"{test}, {label}",
                *(f"{cells[name].median:.1f}" if name in cells else "" for name in names),
                cells[OURS].share if OURS in cells else "",
                f"{ratio:.2f}" if ratio else "", f"{target:.2f}" if target else "", against or "",
                "" if ratio is None or target is None else "reached" if ratio >= target else "missed",
            ])  # fmt: skip
    return heads, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    compare.add_program_options(parser)
    parser.add_argument("--models", action="append", required=True, type=Path, metavar="DIR", help="may be repeated")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows whose pattern this matches")
    args = parser.parse_args()
    before = compare.load()
    programs = compare.programs_of(args)
    measured = run(args, programs)
    all_results = compare.Results()
    for _, _, results in measured:
        for key, cells in results.cells.items():
            all_results.cells.setdefault(key, cells)
    print("# Speed\n")
    print(f"{compare.machine(before)}. Tokens per second, medians of {args.rounds} rounds; programs took turns.\n")
    for program in programs:
        print(f"- {program.name}: `{' '.join([Path(program.command[0]).name, *program.command[1:]])}`")
    print(f"\n{compare.markdown(*rows_of(measured, programs))}\n\n## Memory and warm load\n\n{compare.memory(all_results)}")
    if args.json:
        args.json.write_text(json.dumps(all_results.as_json(), indent=1))


if __name__ == "__main__":
    sys.exit(main())
