//! Every check has a planted bug that it reports, by kernel, block, thread and line, and a twin without the bug.

use crate::machine::{self, Machine};

const PTX_75: &str = include_str!("../../kernels/bugs_sm75.ptx");
const PTX_80: &str = include_str!("../../kernels/bugs_sm80.ptx");
const CARD: &str = "card 6 GiB compute 8.0";

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

/// Runs a kernel that maps `x` to `y`, both of `n` floats, in one block.
fn run(name: &str, n: usize, threads: u32) -> Result<Vec<f32>, String> {
    let machine = Machine::new(CARD);
    let (x, y) = (machine.put(&floats(n)), machine.put(&floats(n)));
    let kernel = machine.kernel(PTX_80, name);
    let takes_x = ["reads_beyond", "reads_misaligned", "forgets_barrier", "keeps_barrier", "forgets_copy_wait"];
    let args = if takes_x.contains(&name) { vec![x, y] } else { vec![y] };
    machine.run(kernel, (1, threads, 0), &args)?;
    Ok(machine.get(y, n))
}

fn found(name: &str, n: usize, threads: u32, words: &[&str]) {
    let finding = run(name, n, threads).expect_err("the bug is reported");
    let line = finding.split("PTX line ").nth(1).and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
    let text = finding.rsplit(": ").next().unwrap().trim_end_matches(']');
    let stands_there = PTX_80.lines().nth(line.expect("the line is named") - 1).unwrap();
    assert!(stands_there.contains(text), "`{text}` is not what stands in the line named: `{stands_there}`");
    assert!(finding.starts_with(&format!("{name}: ")), "{finding}");
    assert!(finding.contains("block (0,0,0) thread "), "{finding}");
    for word in words {
        assert!(finding.contains(word), "`{word}` is not in `{finding}`");
    }
}

#[test]
fn a_read_beyond_an_allocation_is_reported() {
    found(
        "reads_beyond",
        64,
        64,
        &["global read of 4 bytes out of bounds", "256 bytes into an allocation of 256", "thread 63"],
    );
}

#[test]
fn a_write_beyond_an_allocation_is_reported() {
    found("writes_beyond", 40, 64, &["global write of 4 bytes out of bounds", "thread 40"]);
}

#[test]
fn a_misaligned_access_is_reported() {
    found("reads_misaligned", 1024, 32, &["misaligned address", "access of 4 bytes", "thread 0"]);
}

#[test]
fn a_missing_barrier_is_reported() {
    found("forgets_barrier", 128, 128, &["shared memory"]);
    let mirrored: Vec<f32> = floats(128).into_iter().rev().collect();
    assert_eq!(run("keeps_barrier", 128, 128), Ok(mirrored));
}

#[test]
fn a_write_after_a_read_without_a_barrier_is_reported() {
    found("forgets_second_barrier", 64, 64, &["shared-memory race", "without a barrier"]);
}

#[test]
fn a_missing_synchronisation_of_a_warp_is_reported() {
    found("forgets_warp_barrier", 32, 32, &["shared-memory race: read after write by thread 31"]);
    assert!(run("keeps_warp_barrier", 32, 32).is_ok());
}

#[test]
fn a_read_of_shared_memory_that_nobody_wrote_is_reported() {
    found("reads_uninitialised", 64, 64, &["uninitialised shared memory", "thread 32"]);
}

#[test]
fn a_divergent_barrier_is_reported() {
    found("diverges_at_barrier", 64, 64, &["divergent barrier: 40 of 64 threads wait"]);
}

#[test]
fn a_divergent_shuffle_is_reported() {
    found("diverges_at_shuffle", 32, 32, &["shuffle of lanes 0xffffffff, but 0xaaaaaaaa are here", "thread 1"]);
}

#[test]
fn atomic_and_plain_accesses_that_mix_are_reported() {
    found("mixes_atomics", 64, 64, &["shared-memory race", "atomic operation"]);
}

#[test]
fn a_read_before_an_asynchronous_copy_was_waited_for_is_reported() {
    found("forgets_copy_wait", 128, 32, &["asynchronous copy to it is on its way"]);
}

#[test]
fn too_little_dynamic_shared_memory_is_reported() {
    let machine = Machine::new(CARD);
    let y = machine.put(&floats(64));
    let kernel = machine.kernel(PTX_75, "fills_dynamic_shared");
    assert_eq!(machine.run(kernel, (1, 64, 4 * 100), &[y, 100]), Ok(()));
    assert_eq!(machine.get::<f32>(y, 3), [1.0, 2.0, 3.0]);
    let finding = machine.run(kernel, (1, 64, 4 * 99), &[y, 100]).unwrap_err();
    assert!(finding.contains("shared memory out of bounds: 4 bytes at 396 of 396"), "{finding}");
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let machine = Machine::new(CARD);
    let y = machine.put(&floats(128));
    let bounded = machine.kernel(PTX_75, "is_bounded");
    assert_eq!(machine.run(bounded, (1, 64, 0), &[y]), Ok(()));
    assert!(machine.run(bounded, (1, 65, 0), &[y]).unwrap_err().contains("65 threads, its launch bounds are 64"));
    assert!(machine.run(bounded, (0, 64, 0), &[y]).is_err());
    let shared = machine.kernel(PTX_75, "fills_dynamic_shared");
    assert!(machine.run(shared, (1, 64, (48 << 10) + 1), &[y, 1]).unwrap_err().contains("dynamic shared memory"));
}

#[test]
fn a_parameter_that_is_too_small_is_refused_where_it_can_be_seen() {
    let machine = Machine::new(CARD);
    let y = machine.put(&floats(64));
    let kernel = machine.kernel(PTX_75, "is_bounded");
    let mut smaller = [0u32, y as u32, (y >> 32) as u32];
    let mut pointers =
        [std::ptr::from_mut(&mut smaller[if smaller.as_ptr().addr().is_multiple_of(8) { 1 } else { 0 }])];
    let none = std::ptr::null_mut();
    // SAFETY: eight bytes are readable there.
    let code = unsafe { launch(kernel, pointers.as_mut_ptr().cast(), none) };
    assert_eq!(code, 1);
    assert!(machine::said(code).contains("parameter 0 has 8 bytes"));
}

unsafe fn launch(kernel: machine::Handle, params: *mut machine::Handle, none: machine::Handle) -> i32 {
    // SAFETY: passed on from this function's caller.
    unsafe { machine::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none, params, none.cast()) }
}

#[test]
fn ptx_that_driver_or_card_do_not_know_is_refused() {
    let machine = Machine::new("card 6 GiB compute 7.5");
    let load = |ptx: &str| {
        let text = std::ffi::CString::new(ptx).unwrap();
        let mut module = std::ptr::null_mut();
        // SAFETY: a C string and a place for a handle.
        unsafe { machine::cuModuleLoadData(&mut module, text.as_ptr().cast()) }
    };
    assert_eq!(load(PTX_75), 0);
    assert_eq!(load(PTX_80), 209);
    machine.configure("card 6 GiB compute 7.5\ncuda version 11080");
    assert_eq!(load(PTX_75), 222);
    assert!(machine::said(222).contains("PTX 80 is newer than 78"));
    machine.configure(CARD);
    assert_eq!(load(&PTX_75.replace("bar.sync", "bar.unheard")), 218);
    assert!(machine::said(218).contains("PTX line"), "{}", machine::said(218));
}
