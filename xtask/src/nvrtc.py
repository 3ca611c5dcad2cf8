"""Compiles one CUDA C source with NVRTC and writes its PTX to standard output.

nvrtc.py LIBRARY SOURCE ARCHITECTURE
"""

import ctypes
import pathlib
import sys


def main(library, source, architecture):
    nvrtc = ctypes.CDLL(library)
    source = pathlib.Path(source)
    program = ctypes.c_void_p()
    # The name without its folder: it goes into symbols, which must not depend on where the clone lies.
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None
    )
    if created:
        sys.exit(f"NVRTC refuses {source.name} (error {created})")
    flags = [f"--gpu-architecture={architecture}", f"-I{source.parent}", "-default-device", "--std=c++17"]
    failed = nvrtc.nvrtcCompileProgram(
        program, len(flags), (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    )
    log = text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode().strip()
    if log:
        print(log, file=sys.stderr)
    if failed:
        sys.exit(f"{source.name} does not compile for {architecture} (error {failed})")
    sys.stdout.buffer.write(text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))


def text(program, size_of, get):
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw.rstrip(b"\0")


main(*sys.argv[1:])
