#!/usr/bin/env python3
"""Runs the engine's tests on a CPU that this computer does not have: the emulator Bochs boots Linux on it and starts them.

    bench/emulate.py --cpu tigerlake --kernel VMLINUZ                  kernels and architectures, on AVX-512 with VNNI
    bench/emulate.py --cpu arrow_lake --kernel VMLINUZ --model FILE    the same on AVX-VNNI, and SmolLM2 against its goldens
    bench/emulate.py --cpu tigerlake --kernel VMLINUZ -- PROGRAM …     anything else

It proves results, not speed: an emulated CPU takes about a hundred times as long.

Needed: Bochs 3.0 or later, built with AVX and AVX-512 (`bochs --help cpu` says which CPUs a build knows; Debian's, 2.7, boots with
this script but has no AVX), and Debian's packages bochsbios, vgabios, busybox-static, cpio, isolinux and xorriso. VMLINUZ
is the kernel out of a `linux-image-…-cloud-amd64`. Bochs 3.0 misreads one instruction of the TQ1_0 test on AVX-512. What was run on which CPU stands in `engine/NOTES.md`.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What is to be tested on a CPU: its highest instruction set.
ISAS = {"corei7_icelake_u": "avx512vnni", "tigerlake": "avx512vnni", "sapphire_rapids": "avx512vnni", "arrow_lake": "avxvnni"}

# The kernel says little, measures nothing and trusts the clock. Bit 580 of the CPU's features, fast short `rep movsb`, is hidden:
# Linux 6.1 hangs where it comes without the fast long one, which Bochs leaves switched off.
KERNEL_OPTIONS = (
    "console=ttyS0,115200 quiet loglevel=3 clearcpuid=580 mitigations=off nokaslr tsc=reliable no_timer_check lpj=400000 nosmp"
    " noapic nowatchdog audit=0 apparmor=0 random.trust_cpu=on cryptomgr.notests rcupdate.rcu_expedited=1 panic=-1"
)

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs -o size=100% tmp /tmp
/bin/busybox --install -s /bin
ip link set lo up
echo "CPU: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2)"
echo "FLAGS: $(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\\n' | grep -E 'avx|amx' | tr '\\n' ' ')"
cd {folder}
status=0
{commands}
echo "EXIT $status"
# what was said last is still on the line
sleep 2
poweroff -f
"""

BOCHSRC = """megs: {megs}
cpu: model={cpu}, count=1, ips={ips}, reset_on_triple_fault=0
romimage: file={bios}
vgaromimage: file={vga}
ata0-master: type=cdrom, path={iso}, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={serial}
display_library: {display}
log: {log}
panic: action=fatal
error: action=ignore
info: action=ignore
clock: sync=none
"""


def main():
    options = arguments()
    programs, files, variables = [options.program], options.files, options.set
    if not options.program:
        if options.cpu not in ISAS:
            sys.exit(f"name a program: what `{options.cpu}` is for is not known, only {', '.join(ISAS)}")
        programs, files, variables = tests(ISAS[options.cpu], options)
    with tempfile.TemporaryDirectory(prefix="emulate-") as folder:
        write_disc(programs, files, variables, options, Path(folder))
        sys.exit(boot(options, Path(folder)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpu", required=True, help="a name from `bochs --help cpu`")
    parser.add_argument("--bochs", default="bochs", help="the emulator")
    parser.add_argument("--kernel", required=True, help="Linux as a bzImage")
    parser.add_argument("--bios", default="/usr/share/bochs/BIOS-bochs-latest")
    parser.add_argument("--vga", default="/usr/share/vgabios/vgabios.bin")
    parser.add_argument("--display", default="nogui", help='as in a bochsrc; Debian\'s build has `rfb, options="timeout=0"`')
    parser.add_argument("--megs", type=int, default=2048, help="memory of the emulated computer")
    parser.add_argument("--ips", type=int, default=50_000_000, help="instructions that make a second of its clock")
    parser.add_argument("--timeout", type=int, default=7200, help="seconds of this computer's clock")
    parser.add_argument("--model", type=Path, help="SmolLM2, for a test of its logits")
    parser.add_argument("--tokens", type=int, default=16, help="how many it is given")
    parser.add_argument("--with", dest="files", type=Path, action="append", default=[], help="what PROGRAM reads: a file or folder")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE for the environment of PROGRAM")
    parser.add_argument("program", nargs="*", help="a program and its arguments instead of the tests")
    return parser.parse_args()


def tests(isa, options):
    """Builds the tests; what to run, what that reads, and its environment."""
    built = executables("-p", "tandem-engine", "--lib", "--test", "architectures")
    programs = [
        [built["tandem_engine"], "--test-threads", "1", "cpu::"],
        [built["architectures"], "--test-threads", "1", "--show-output", "fixtures_agree"],
    ]
    files, variables = [ROOT / "engine/tests/data"], [f"TANDEM_ISA={isa}"]
    if options.model:
        # the whole workspace, or its libraries would be built with other features once more
        logits = executables("--workspace", "--test", "logits")["logits"]
        programs.append([logits, "--show-output", f"exact_result::{isa}"])
        files += [options.model, ROOT / "tests/goldens/smollm2-logits.json"]
        variables += [f"TANDEM_SMOLLM2={options.model.resolve()}", f"TANDEM_TOKENS={options.tokens}"]
    return programs, files, variables


def executables(*selection):
    """Test programs by the names of their targets."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *selection]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    artifacts = [json.loads(line) for line in lines]
    return {artifact["target"]["name"]: artifact["executable"] for artifact in artifacts if artifact.get("executable")}


def write_disc(programs, files, variables, options, folder):
    """What the emulator boots from: a kernel, and as its first file system the programs with all that they need."""
    root, disc = folder / "root", folder / "disc"
    for name in ["bin", "dev", "proc", "sys", "tmp", Path.cwd().relative_to("/")]:
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for path in files:
        copy(path.resolve(), root)
    for program, *_ in programs:
        # libraries are looked for by the names that they were found by
        for path in [Path(program).resolve(), *libraries(program)]:
            copy(path, root)
    init = root / "init"
    init.write_text(init_script(programs, variables))
    init.chmod(0o755)

    isolinux = disc / "isolinux"
    isolinux.mkdir(parents=True)
    shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", isolinux)
    shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", isolinux)
    shutil.copy(options.kernel, disc / "vmlinuz")
    menu = f"DEFAULT l\nPROMPT 0\nLABEL l\nKERNEL /vmlinuz\nAPPEND initrd=/initrd {KERNEL_OPTIONS}\n"
    (isolinux / "isolinux.cfg").write_text(menu)
    with open(disc / "initrd", "wb") as initrd:
        names = subprocess.run(["find", ".", "-print0"], cwd=root, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["cpio", "-0o", "-H", "newc", "--quiet"], cwd=root, input=names, check=True, stdout=initrd)
    boot_options = ["-b", "isolinux/isolinux.bin", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]
    command = ["xorriso", "-as", "mkisofs", "-quiet", "-o", folder / "disc.iso", *boot_options, disc]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def init_script(programs, variables):
    exports = [f"export {shlex.quote(variable)}" for variable in ["TMPDIR=/tmp", "HOME=/tmp", *variables]]
    runs = [shlex.join([str(Path(program).resolve()), *rest]) + " || status=$?" for program, *rest in programs]
    return INIT.format(folder=shlex.quote(str(Path.cwd())), commands="\n".join(exports + runs))


def libraries(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]


def copy(path, root):
    to = root / path.relative_to("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, dirs_exist_ok=True)
    else:
        shutil.copy(path, to)


def boot(options, folder):
    """Runs the emulator until the programs have ended; the last failure among them, or 0."""
    serial, configuration, debugger = folder / "serial", folder / "bochsrc", folder / "debugger"
    serial.touch()
    names = {"iso": folder / "disc.iso", "serial": serial, "log": folder / "log"}
    settings = {name: getattr(options, name) for name in ["cpu", "megs", "ips", "bios", "vga", "display"]}
    configuration.write_text(BOCHSRC.format(**settings, **names))
    command = [options.bochs, "-q", "-f", configuration]
    usage = subprocess.run([options.bochs, "--help"], capture_output=True, text=True)
    if "-rc" in usage.stdout + usage.stderr:
        # a build with a debugger waits for a word
        debugger.write_text("c\n")
        command += ["-rc", debugger]
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    emulator = subprocess.Popen(command, **nowhere)
    try:
        with open(serial, encoding="utf-8", errors="replace", newline="") as lines:
            return follow(lines, emulator, options.timeout)
    finally:
        emulator.kill()
        emulator.wait()


def follow(lines, emulator, timeout):
    """Prints what comes over the serial line, with the seconds since the start, until the programs have ended."""
    start, line = time.monotonic(), ""
    while time.monotonic() - start < timeout:
        has_ended = emulator.poll() is not None
        part = lines.readline()
        line += part
        if line.endswith("\n"):
            print(f"{time.monotonic() - start:7.1f} {line.rstrip()}", flush=True)
            if ended := re.match(r"EXIT (\d+)", line):
                return int(ended[1])
            line = ""
        elif not part and has_ended:
            print("the emulator has ended by itself")
            return 125
        elif not part:
            time.sleep(0.1)
    print(f"stopped after {timeout} s")
    return 124


if __name__ == "__main__":
    main()
