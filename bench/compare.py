#!/usr/bin/env python3
"""Runs `tandem bench` and builds of llama-bench in turn on the same files, and prints medians and ratios as Markdown.

    bench/compare.py --rival llama.cpp=/opt/llama.cpp/llama-bench \\
                     --rival "llama.cpp+plain=/opt/llama.cpp/llama-bench --repack 0" \\
                     --rival "ik=/opt/ik/llama-bench -rtr 1 -fmoe 1" \\
                     --tests pp512,tg128,tg32@8192 model.gguf …

One process per program, file and round; the programs take turns, so that what disturbs one disturbs all. A rival `name+mode`
is one mode of `name`: ratios are against the better mode of each name, test by test. Every process computes a short prompt
first, which is not counted. Needs nothing but Python.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

OURS = "tandem"
# Length of the prompt that warms a rival up; ours warms itself up.
WARM_UP = 64
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Test:
    """A test as llama-bench names it: `pp512`, `tg128`, `tg32@8192`."""

    kind: str
    n_tokens: int
    depth: int = 0

    @staticmethod
    def parse(text):
        match = re.fullmatch(r"(pp|tg)(\d+)(?:@d?(\d+))?", text.replace(" ", ""))
        if not match:
            raise argparse.ArgumentTypeError(f"`{text}` is no test: expected such as pp512, tg128 or tg32@8192")
        return Test(match[1], int(match[2]), int(match[3] or 0))

    def __str__(self):
        return f"{self.kind}{self.n_tokens}" + (f" @ d{self.depth}" if self.depth else "")

    def sizes(self):
        """Tokens of prompt and of generation."""
        return (self.n_tokens, 0) if self.kind == "pp" else (0, self.n_tokens)


@dataclass(frozen=True)
class Setting:
    """What all programs of a run share."""

    threads: int
    cache: str = "f16"
    isa: str = ""
    busy: int = 0


@dataclass
class Program:
    """A program that measures: how to call it, and how to read what it says."""

    name: str
    command: list
    has_depth: bool = True

    @property
    def family(self):
        return self.name.split("+")[0]


class Tandem(Program):
    """`tandem bench`."""

    def arguments(self, model, tests, setting):
        """One list of arguments per process: a prompt and a generation go together where their depths are the same."""
        for depth in sorted({test.depth for test in tests}):
            here = [test for test in tests if test.depth == depth]
            for sizes in paired(here):
                prompt, generation = sizes
                yield [
                    "bench", str(model), "-p", str(prompt), "-n", str(generation), "-d", str(depth), "-r", "1",
                    "-t", str(setting.threads), "-ctk", setting.cache, "-ctv", setting.cache, "--json",
                    *(["--isa", setting.isa] if setting.isa else []),
                ]  # fmt: skip

    @staticmethod
    def results(report):
        for test in report["tests"]:
            kind = "pp" if test["n_prompt"] else "tg"
            found = Test(kind, test["n_prompt"] or test["n_generate"], test["n_depth"])
            details = {"memory": report["memory"], "warm_load_ms": report["warm_load_ms"], **(test.get("reads") or {})}
            yield found, test["tokens_per_s"], details


class LlamaBench(Program):
    """llama-bench of llama.cpp, or of ik_llama.cpp, which has no depths but prompts before a generation (`-gp`)."""

    def arguments(self, model, tests, setting):
        cache = ["-ctk", setting.cache, "-ctv", setting.cache, *(["-fa", "1"] if setting.cache != "f16" else [])]
        common = ["-m", str(model), "-r", "1", "-t", str(setting.threads), "-o", "json", *cache]
        common += ["--no-warmup"] if self.has_depth else ["-w", "0"]
        for depth in sorted({test.depth for test in tests}):
            here = [test for test in tests if test.depth == depth]
            if depth and not self.has_depth:
                # a prompt at a depth is not known there
                for test in here:
                    if test.kind == "tg":
                        yield [*common, "-p", str(WARM_UP), "-n", "0", "-gp", f"{depth},{test.n_tokens}"]
                continue
            for prompt, generation in paired(here):
                warm_up = f"{WARM_UP},{prompt}" if prompt else str(WARM_UP)
                yield [*common, "-p", warm_up, "-n", str(generation), *(["-d", str(depth)] if depth else [])]

    @staticmethod
    def results(report):
        for row in report:
            prompt, generation, depth = row["n_prompt"], row["n_gen"], row.get("n_depth", 0)
            if prompt and generation:
                yield Test("tg", generation, prompt), row["avg_ts"], {}
            else:
                yield Test("pp" if prompt else "tg", prompt or generation, depth), row["avg_ts"], {}


def paired(tests):
    """Tokens of prompt and generation per process: as few processes as there must be."""
    prompts = [test.n_tokens for test in tests if test.kind == "pp"]
    generations = [test.n_tokens for test in tests if test.kind == "tg"]
    for i in range(max(len(prompts), len(generations))):
        yield (prompts[i] if i < len(prompts) else 0), (generations[i] if i < len(generations) else 0)


@dataclass
class Cell:
    """Results of one program in one test."""

    samples: list = field(default_factory=list)
    # Of the bandwidth that was measured in the same process; only ours says so.
    shares: list = field(default_factory=list)
    details: dict = field(default_factory=dict)

    @property
    def median(self):
        return statistics.median(self.samples) if self.samples else None

    @property
    def share(self):
        return f"{statistics.median(self.shares):.0%}" if self.shares else ""


class Results:
    """Cells by file, setting, test and program."""

    def __init__(self):
        self.cells = {}

    def add(self, model, setting, test, program, rate, details):
        cell = self.cells.setdefault((model.name, setting, test), {}).setdefault(program, Cell())
        cell.samples.append(rate)
        cell.shares += [details["share"]] if "share" in details else []
        cell.details = details

    def median(self, model, setting, test, program):
        cell = self.cells.get((model.name, setting, test), {}).get(program)
        return cell and cell.median

    def as_json(self):
        return [
            {
                "file": file, "test": str(test), "cache": setting.cache, "isa": setting.isa, "busy": setting.busy,
                "threads": setting.threads,
                "programs": {name: {"median": cell.median, "samples": cell.samples} for name, cell in cells.items()},
                "ours": cells[OURS].details if OURS in cells else {},
            }
            for (file, setting, test), cells in self.cells.items()
        ]  # fmt: skip


def ask(program, arguments):
    """Runs a program and reads the JSON that it prints; None, and a word about it, if it fails."""
    command = [*program.command, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            return json.loads(done.stdout)
    except json.JSONDecodeError:
        pass
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    print(f"{program.name} failed ({done.returncode}): {shlex.join(command)}\n  {last}", file=sys.stderr)
    return None


@contextlib.contextmanager
def busy(n):
    """So many processes that only count."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(programs, models, tests, settings, rounds, results=None):
    """Runs everything in turn; who begins changes from round to round."""
    results = results or Results()
    for turn in range(rounds):
        for model in models:
            for setting in settings:
                order = programs[turn % len(programs) :] + programs[: turn % len(programs)]
                for program in order:
                    note(f"round {turn + 1} of {rounds}: {model.name}, {label(setting)}, {program.name}")
                    for arguments in program.arguments(model, tests, setting):
                        with busy(setting.busy):
                            report = ask(program, arguments)
                        for test, rate, details in program.results(report) if report else ():
                            if test in tests:
                                results.add(model, setting, test, program.name, rate, details)
    return results


def label(setting):
    """What is particular to a setting."""
    parts = [f"{setting.cache} cache" if setting.cache != "f16" else "", setting.isa]
    parts.append(f"beside {setting.busy} busy" if setting.busy else "")
    return ", ".join(part for part in parts if part) or "plain"


def families(programs):
    """Names of rivals, each once, in order."""
    return list(dict.fromkeys(program.family for program in programs if program.name != OURS))


def best_of(cells, family):
    """Median of the best mode of a rival."""
    medians = [cell.median for name, cell in cells.items() if name.split("+")[0] == family and name != OURS]
    return max(medians, default=None)


def table(results, programs):
    """Markdown: medians in tokens per second, ratios against each rival's better mode, and our share of bandwidth."""
    names = [program.name for program in programs]
    rivals = families(programs)
    heads = ["file", "test", *names, *(f"/ {rival}" for rival in rivals), "of read", "/ quiet"]
    rows = []
    for (file, setting, test), cells in results.cells.items():
        ours = cells[OURS].median if OURS in cells else None
        ratio = lambda other: f"{ours / other:.2f}" if ours and other else ""
        quiet = results.cells.get((file, Setting(setting.threads, setting.cache, setting.isa), test), {}).get(OURS)
        name = str(test) if label(setting) == "plain" else f"{test}, {label(setting)}"
        rows.append([
            file.removesuffix(".gguf"), name,
            *(f"{cells[name].median:.1f}" if name in cells else "" for name in names),
            *(ratio(best_of(cells, rival)) for rival in rivals),
            cells[OURS].share if OURS in cells else "",
            f"{ours / quiet.median:.0%}" if setting.busy and ours and quiet else "",
        ])  # fmt: skip
    return markdown(heads, rows)


def markdown(heads, rows):
    """A table; columns without anything in them are left out."""
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    lines = [[heads[i] for i in kept], *([row[i] for i in kept] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(kept))]
    # Names at the left, figures at the right.
    pad = lambda i, cell, width: cell.ljust(width) if i < 2 else cell.rjust(width)
    text = ["| " + " | ".join(map(pad, kept, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (w + 2) if i < 2 else "-" * (w + 1) + ":" for i, w in zip(kept, widths)) + "|"
    return "\n".join([text[0], rule, *text[1:]])


def memory(results):
    """Markdown: what our process held at most, and how long a warm load took."""
    rows, seen = [], set()
    for (file, _, _), cells in results.cells.items():
        held = cells[OURS].details.get("memory", {}) if OURS in cells else {}
        if file in seen or not held.get("peak"):
            continue
        seen.add(file)
        stated = sum(held[part] for part in ("file", "kv", "checkpoints", "buffers"))
        peak, load = held["peak"], cells[OURS].details["warm_load_ms"]
        rows.append([file.removesuffix(".gguf"), "", f"{peak / 1e6:.0f}", f"{stated / 1e6:.0f}", f"{peak / stated:.2f}", f"{load:.0f}"])
    return markdown(["file", "", "peak MB", "stated MB", "ratio", "warm load, ms"], rows) if rows else ""


def machine(before):
    """What a figure must not be read without."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        info = Path("/proc/cpuinfo").read_text()
        cpu = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), cpu)
    return f"{cpu}, {os.cpu_count()} processors, {platform.system()} {platform.release()}; load {before:.1f} before, {load():.1f} after"


def load():
    """Processes that wanted to run in the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def note(text):
    print(text, file=sys.stderr, flush=True)


def rival(text):
    """`name=path arguments…`; whether it knows depths is in its help."""
    name, separator, command = text.partition("=")
    command = shlex.split(command)
    if not separator or not name or not command:
        raise argparse.ArgumentTypeError(f"`{text}`: expected NAME=PATH, perhaps with arguments behind it")
    try:
        said = subprocess.run([command[0], "--help"], capture_output=True, text=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"`{command[0]}` cannot be started: {error.strerror}") from None
    return LlamaBench(name, command, has_depth="--n-depth" in said.stdout + said.stderr)


def our_program():
    """The release build if there is one."""
    builds = [ROOT / "target" / profile / ("tandem.exe" if os.name == "nt" else "tandem") for profile in ("release", "debug")]
    return next((build for build in builds if build.is_file()), builds[0])


def add_program_options(parser):
    """Options that name the programs."""
    parser.add_argument("--tandem", default=our_program(), type=Path, help="our program; by default this checkout's")
    parser.add_argument("--rival", action="append", default=[], type=rival, metavar="NAME=PATH…", help="a llama-bench with its arguments; may be repeated")
    parser.add_argument("--threads", "-t", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", "-r", type=int, default=3)
    parser.add_argument("--isa", default="", help="instruction set for ours, such as avx2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")


def programs_of(args):
    """Ours first."""
    return [Tandem(OURS, [str(args.tandem)]), *args.rival]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    listed = lambda of: lambda text: [of(part) for part in text.split(",")]
    parser.add_argument("models", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tests", type=listed(Test.parse), default=[Test("pp", 512), Test("tg", 128)], metavar="LIST")
    parser.add_argument("--cache", type=listed(str), default=["f16"], metavar="LIST", help="types of the KV cache, such as f16,q8_0")
    parser.add_argument("--busy", type=listed(int), default=[0], metavar="LIST", help="numbers of busy processes beside, such as 0,1,2")
    args = parser.parse_args()
    before = load()
    settings = [Setting(args.threads, cache, args.isa, n) for cache in args.cache for n in args.busy]
    programs = programs_of(args)
    results = measure(programs, args.models, args.tests, settings, args.rounds)
    print(f"{machine(before)}; medians of {args.rounds} rounds, tokens per second\n\n{table(results, programs)}")
    if held := memory(results):
        print(f"\n{held}")
    if args.json:
        args.json.write_text(json.dumps(results.as_json(), indent=1))


if __name__ == "__main__":
    main()
