//! A stand-in for NVIDIA's driver library (`libcuda.so`, `nvcuda.dll`) that runs PTX on the CPU.
//!
//! The code that is shipped runs against it unchanged: the same PTX, the same calls through cudarc. It reports what a card
//! would let pass, or only crash on: accesses out of bounds and misaligned, reads of shared memory that nobody wrote, races in
//! shared memory, divergent barriers and shuffles, work on several streams that meets without an order, arguments and launches
//! that do not fit their kernel, PTX that is too new for the driver or the card. Each finding names the kernel, the block, the
//! thread and the line of the PTX; it is printed, it is the text of `cuGetErrorString`, and the call that waits for the work fails.
//!
//! Work is done when somebody waits for it, so that what forgets to wait gets old bytes every time, not now and then.
//! Copies from memory that is not pinned take the bytes at once, as the driver does. What it is not: a measure of
//! speed, or of the rounding of approximate instructions, which are computed as exactly as the host can. Races between blocks in
//! global memory are not seen.
//!
//! # Settings
//!
//! A text, from the first of: `simcuda_configure` (in the same process, see [`Simulator`]), the file `simcuda.txt` beside the
//! library (read again when it changes), the environment variable `SIMCUDA` with `;` for new lines. Lines:
//!
//! ```text
//! card 6 GiB free 5.5 GiB compute 7.5 name NVIDIA GeForce RTX 2060   # one line per card
//! card 24 GiB multiprocessors 80 lost-after 100       # the card is gone after 100 launches
//! fail cuMemHostRegister_v2 801                       # the code of CUresult
//! fail cuMemAlloc_v2 2 after 10                       # ten calls succeed before
//! cuda version 11080                                  # what cuDriverGetVersion tells
//! cuda init 100                                       # what cuInit answers
//! cuda run at-once                                    # or late, the default
//! cuda threads 1                                      # host threads for a kernel's blocks
//! cuda wrong matvec_                                  # kernels whose names begin so store numbers with the other sign
//! cuda sticky                                         # after a fault in a kernel every call fails, as on a card
//! ```
//!
//! `free` is what other programs leave: change it to simulate that they take memory. `tandem-fake-nvml` reads the same lines.

mod check;
mod client;
mod counters;
mod driver;
mod exec;
mod ptx;
mod settings;

pub use client::{Simulator, drive};
pub use counters::{Counters, KernelCounters};
pub use settings::{Card, Run, Settings};
