"""Tests of the scripts: `python3 -m unittest discover bench`. Programs are played by a few lines of Python."""

import stat
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import compare
import table
from compare import Setting, Test

PLAIN = Setting(2)
# Says what llama-bench says: 100 t/s for prompts, 10 for generation, one tenth at a depth; fails for `broken.gguf`.
LLAMA_BENCH = """
import json, sys
args = sys.argv[1:]
if "--help" in args:
    print("-d, --n-depth <n>" if {has_depth} else "-gp <pp,tg>")
    sys.exit()
value = lambda name, absent="0": args[args.index(name) + 1] if name in args else absent
if "broken" in value("-m"):
    sys.exit("error: damaged")
rows = [(int(p), 0) for p in value("-p").split(",") if int(p)] + [(0, int(n)) for n in value("-n").split(",") if int(n)]
rows += [tuple(map(int, value("-gp").split(",")))] if "-gp" in args else []
depth = int(value("-d"))
speed = {speed} * (2 if "--fast" in args else 1) / (10 if depth or "-gp" in args else 1)
row = lambda p, n: dict(n_prompt=p, n_gen=n, avg_ts=speed * (10 if p and not n else 1), **(dict(n_depth=depth) if {has_depth} else {{}}))
print(json.dumps([row(*sizes) for sizes in rows]))
"""
TANDEM = """
import json, sys
args = sys.argv[1:]
value = lambda name: int(args[args.index(name) + 1])
test = lambda p, n, rate: dict(n_prompt=p, n_generate=n, n_depth=value("-d"), tokens_per_s=rate, **({} if p else dict(reads=dict(share=0.5))))
tests = [test(value("-p"), 0, 150.0)] * bool(value("-p")) + [test(0, value("-n"), 30.0)] * bool(value("-n"))
memory = dict(peak=210, file=150, kv=40, checkpoints=0, buffers=10)
print(json.dumps(dict(tests=tests, memory=memory, warm_load_ms=7.0)))
"""


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def rival(self, name, speed=10, has_depth=True, arguments=""):
        path = self.script(name.replace("+", "-"), LLAMA_BENCH.format(speed=speed, has_depth=has_depth))
        return compare.rival(f"{name}={path} {arguments}")

    def ours(self):
        return compare.Tandem("tandem", [str(self.script("tandem", TANDEM))])

    def measure(self, programs, tests, settings=(PLAIN,), model="m.gguf", rounds=2):
        tests = [Test.parse(test) for test in tests]
        return compare.measure(programs, [self.folder / model], tests, list(settings), rounds)

    def test_a_ratio_is_against_the_better_mode_of_a_rival(self):
        programs = [self.ours(), self.rival("r"), self.rival("r+fast", arguments="--fast"), self.rival("other", speed=5)]
        results = self.measure(programs, ["pp512", "tg128"])
        text = compare.table(results, programs)
        pp, tg = (line.replace(" ", "").split("|")[1:-1] for line in text.splitlines()[2:])
        self.assertEqual(pp[:6], ["m", "pp512", "150.0", "100.0", "200.0", "50.0"])
        self.assertEqual(pp[6:], ["0.75", "3.00", ""])
        self.assertEqual(tg[6:], ["1.50", "6.00", "50%"])
        self.assertIn("1.05", compare.memory(results))

    def test_a_depth_is_asked_for_in_each_programs_way(self):
        programs = [self.ours(), self.rival("r"), self.rival("ik", has_depth=False)]
        results = self.measure(programs, ["tg32@8192", "pp64@8192"])
        file = self.folder / "m.gguf"
        medians = lambda test: [results.median(file, PLAIN, Test.parse(test), program.name) for program in programs]
        self.assertEqual(medians("tg32@8192"), [30.0, 1.0, 1.0])
        self.assertEqual(medians("pp64@8192"), [150.0, 10.0, None])

    def test_every_round_counts_and_the_warm_up_does_not(self):
        results = self.measure([self.rival("r")], ["pp512"], rounds=3)
        self.assertEqual([len(cell.samples) for cells in results.cells.values() for cell in cells.values()], [3])
        self.assertEqual(len(results.cells), 1)

    def test_a_program_that_fails_leaves_a_gap(self):
        results = self.measure([self.ours(), self.rival("r")], ["tg128"], model="broken.gguf")
        text = compare.table(results, [self.ours(), self.rival("r")])
        self.assertIn("30.0", text)
        self.assertNotIn("/ r", text)

    def test_busy_is_set_beside_quiet(self):
        settings = [PLAIN, Setting(2, busy=1)]
        text = compare.table(self.measure([self.ours()], ["tg64"], settings, rounds=1), [self.ours()])
        self.assertIn("tg64, beside 1 busy", text)
        self.assertIn("100%", text)

    def test_targets_are_judged(self):
        row = table.Row("m*", "pp512,tg128", {"pp": ("best", 1.0), "tg": ("r", 2.0)})
        programs = [self.ours(), self.rival("r"), self.rival("r+fast", arguments="--fast")]
        measured = [(row, self.folder / "m.gguf", self.measure(programs, ["pp512", "tg128"])), (row, None, None)]
        heads, rows = table.rows_of(measured, programs)
        said = [dict(zip(heads, cells)) for cells in rows]
        self.assertEqual([(cells["ratio"], cells["target"], cells[""]) for cells in said], [("0.75", "1.00", "missed"), ("1.50", "2.00", "missed"), ("", "", "missing")])
        row = table.Row("m*", "tg128", {"tg": ("r", 1.5)})
        (heads, rows) = table.rows_of([(row, *measured[0][1:])], programs)
        self.assertEqual(rows[1][-1], "reached")

    def test_tests_are_read_as_llama_bench_writes_them(self):
        self.assertEqual([str(Test.parse(text)) for text in ("pp512", "tg32@8192", "tg32 @ d8192")], ["pp512", "tg32 @ d8192", "tg32 @ d8192"])
        with self.assertRaises(Exception):
            Test.parse("512")


if __name__ == "__main__":
    unittest.main()
