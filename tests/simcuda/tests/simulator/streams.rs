//! Order: what is queued is done when it is waited for, events order streams, and what has no order is reported.

use std::ffi::c_void;

use crate::machine::{self, Handle, Machine, said};

const PTX: &str = include_str!("../../kernels/bugs_sm75.ptx");
const CARD: &str = "card 6 GiB compute 7.5";
const N: u32 = 1000;

/// Queues `y += 1`.
fn add_one(machine: &Machine, stream: Handle, y: u64) {
    let kernel = machine.kernel(PTX, "adds_one");
    assert_eq!(machine.queue(kernel, (8, 128, 0), stream, &[y, u64::from(N)]), 0);
}

fn wait(stream: Handle) -> Result<(), String> {
    // SAFETY: the stream is there.
    match unsafe { machine::cuStreamSynchronize(stream) } {
        0 => Ok(()),
        code => Err(said(code)),
    }
}

/// Orders a stream after another.
fn order(first: Handle, then: Handle) {
    let mut event = std::ptr::null_mut();
    // SAFETY: the streams are there.
    unsafe {
        assert_eq!(machine::cuEventCreate(&mut event, 2), 0);
        assert_eq!(machine::cuEventRecord(event, first), 0);
        assert_eq!(machine::cuStreamWaitEvent(then, event, 0), 0);
    }
}

#[test]
fn copies_to_pinned_memory_arrive_when_they_are_waited_for() {
    let machine = Machine::new(CARD);
    let stream = machine.stream();
    let y = machine.put(&[7u32; N as usize]);
    let mut pinned: *mut c_void = std::ptr::null_mut();
    // SAFETY: the arguments are what the functions ask for; the memory is written before it is read.
    unsafe {
        assert_eq!(machine::cuMemHostAlloc(&mut pinned, 4, 0), 0);
        pinned.cast::<u32>().write(0);
        assert_eq!(machine::cuMemcpyDtoHAsync_v2(pinned, y, 4, stream), 0);
        assert_eq!(pinned.cast::<u32>().read(), 0, "the copy must not be done yet");
        wait(stream).unwrap();
        assert_eq!(pinned.cast::<u32>().read(), 7);
        // The other way the card sees what is there when the copy is done.
        pinned.cast::<u32>().write(1);
        assert_eq!(machine::cuMemcpyHtoDAsync_v2(y, pinned, 4, stream), 0);
        pinned.cast::<u32>().write(2);
        wait(stream).unwrap();
        assert_eq!(machine.get::<u32>(y, 2), [2, 7]);
        assert_eq!(machine::cuMemFreeHost(pinned), 0);
    }
}

#[test]
fn copies_from_memory_that_is_not_pinned_take_the_bytes_at_once() {
    let machine = Machine::new(CARD);
    let stream = machine.stream();
    let y = machine.put(&[7u32]);
    let mut plain = [1u32];
    // SAFETY: the arguments are what the function asks for.
    assert_eq!(unsafe { machine::cuMemcpyHtoDAsync_v2(y, plain.as_ptr().cast(), 4, stream) }, 0);
    plain[0] = 2;
    wait(stream).unwrap();
    assert_eq!((machine.get::<u32>(y, 1)[0], plain[0]), (1, 2));
}

#[test]
fn streams_that_meet_without_an_order_are_reported() {
    let machine = Machine::new(CARD);
    let (one, other) = (machine.stream(), machine.stream());
    let y = machine.put(&[0f32; N as usize]);
    add_one(&machine, one, y);
    add_one(&machine, other, y);
    wait(one).unwrap();
    let hazard = wait(other).unwrap_err();
    assert!(hazard.contains("adds_one: hazard between streams: write of"), "{hazard}");
    assert!(hazard.contains("with no order to the write by `adds_one`"), "{hazard}");
}

#[test]
fn an_event_or_the_host_orders_streams() {
    let machine = Machine::new(CARD);
    let (one, other) = (machine.stream(), machine.stream());
    let y = machine.put(&[0f32; N as usize]);
    add_one(&machine, one, y);
    order(one, other);
    add_one(&machine, other, y);
    wait(other).unwrap();
    add_one(&machine, one, y);
    wait(one).unwrap();
    assert_eq!(machine.get::<f32>(y, N as usize), [3.0; N as usize]);
}

#[test]
fn streams_at_different_places_need_no_order() {
    let machine = Machine::new(CARD);
    let (one, other) = (machine.stream(), machine.stream());
    let y = machine.put(&[0f32; 2 * 1024]);
    add_one(&machine, one, y);
    add_one(&machine, other, y + 4 * 1024);
    wait(other).unwrap();
    wait(one).unwrap();
}

#[test]
fn a_graph_does_again_what_was_captured_on_two_streams() {
    let machine = Machine::new(CARD);
    let (one, other) = (machine.stream(), machine.stream());
    let (x, y) = (machine.put(&[0f32; N as usize]), machine.put(&[0f32; N as usize]));
    let (mut graph, mut instance) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the streams and what is captured are there as long as the graph.
    unsafe {
        assert_eq!(machine::cuStreamBeginCapture_v2(one, 2), 0);
        add_one(&machine, one, x);
        order(one, other);
        add_one(&machine, one, x);
        add_one(&machine, other, y);
        assert_eq!(machine::cuStreamSynchronize(one), 900, "a captured stream cannot be waited for");
        order(other, one);
        add_one(&machine, one, y);
        assert_eq!(machine::cuStreamEndCapture(one, &mut graph), 0);
        assert_eq!(machine::cuGraphInstantiateWithFlags(&mut instance, graph, 0), 0);
        assert_eq!(machine.get::<f32>(x, 1), [0.0], "nothing is done while it is captured");
        for _ in 0..3 {
            assert_eq!(machine::cuGraphLaunch(instance, one), 0);
        }
    }
    wait(one).unwrap();
    assert_eq!(machine.get::<f32>(x, N as usize), [6.0; N as usize]);
    assert_eq!(machine.get::<f32>(y, N as usize), [6.0; N as usize]);
    assert_eq!((machine.counter("n_graphs"), machine.counter("n_launches")), (3, 12));
}

#[test]
fn branches_of_a_graph_that_meet_are_reported_and_must_be_joined() {
    let machine = Machine::new(CARD);
    let (one, other) = (machine.stream(), machine.stream());
    let y = machine.put(&[0f32; N as usize]);
    let (mut graph, mut instance) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(machine::cuStreamBeginCapture_v2(one, 2), 0);
        order(one, other);
        add_one(&machine, other, y);
        assert_eq!(machine::cuStreamEndCapture(one, &mut graph), 904);
        assert_eq!(machine::cuStreamBeginCapture_v2(one, 2), 0);
        order(one, other);
        add_one(&machine, one, y);
        add_one(&machine, other, y);
        order(other, one);
        assert_eq!(machine::cuStreamEndCapture(one, &mut graph), 0);
        assert_eq!(machine::cuGraphInstantiateWithFlags(&mut instance, graph, 0), 0);
        assert_eq!(machine::cuGraphLaunch(instance, one), 0);
    }
    assert!(wait(one).unwrap_err().contains("hazard between streams"));
}

#[test]
fn memory_is_what_others_leave_and_comes_back() {
    let machine = Machine::new("card 6 GiB free 1 GiB");
    let mib = 1 << 20;
    let free = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable.
        assert_eq!(unsafe { machine::cuMemGetInfo_v2(&mut free, &mut total) }, 0);
        assert_eq!(total, 6 << 30);
        free
    };
    let before = free();
    let mut address = 0;
    // SAFETY: the arguments are what the functions ask for.
    unsafe {
        assert_eq!(machine::cuMemAlloc_v2(&mut address, 600 * mib), 0);
        assert_eq!(free(), before - 600 * mib);
        let mut more = 0;
        assert_eq!(machine::cuMemAlloc_v2(&mut more, 600 * mib), 2);
        machine.configure("card 6 GiB free 0.5 GiB");
        assert_eq!(free(), 0, "others took more than is left");
        assert_eq!(machine::cuMemFree_v2(address), 0);
        assert_eq!(machine::cuMemFree_v2(address), 1, "it is gone already");
    }
}

#[test]
fn calls_fail_as_they_are_told() {
    let machine = Machine::new("card 6 GiB\nfail cuMemHostRegister_v2 801\nfail cuMemAlloc_v2 2 after 1");
    let mut host = [0u8; 64];
    let mut address = 0;
    // SAFETY: the arguments are what the functions ask for.
    unsafe {
        assert_eq!(machine::cuMemHostRegister_v2(host.as_mut_ptr().cast(), 64, 0), 801);
        assert_eq!(machine::cuMemAlloc_v2(&mut address, 64), 0);
        assert_eq!(machine::cuMemAlloc_v2(&mut address, 64), 2);
        machine.configure("card 6 GiB");
        assert_eq!(machine::cuMemHostRegister_v2(host.as_mut_ptr().cast(), 64, 0), 0);
        assert_eq!(machine::cuMemHostRegister_v2(host.as_mut_ptr().cast(), 64, 0), 712);
        assert_eq!(machine::cuMemHostUnregister(host.as_mut_ptr().cast()), 0);
        machine.configure("cuda init 100");
        assert_eq!(machine::cuInit(0), 100);
    }
}

#[test]
fn a_lost_card_answers_every_call_with_an_error() {
    let machine = Machine::new("card 6 GiB compute 7.5 lost-after 2");
    let y = machine.put(&[0f32; N as usize]);
    let stream = machine.stream();
    let kernel = machine.kernel(PTX, "adds_one");
    let launch = || machine.queue(kernel, (8, 128, 0), stream, &[y, u64::from(N)]);
    assert_eq!((launch(), launch(), launch(), launch()), (0, 0, 999, 999));
    assert_eq!(wait(stream), Err("card 0 is lost".to_owned()));
}

#[test]
fn after_a_fault_every_call_fails_if_it_is_told_so() {
    let machine = Machine::new("card 6 GiB compute 7.5\ncuda sticky");
    let y = machine.put(&[0f32; 8]);
    let kernel = machine.kernel(PTX, "writes_beyond");
    assert!(machine.run(kernel, (1, 64, 0), &[y]).unwrap_err().contains("out of bounds"));
    let mut address = 0;
    // SAFETY: the arguments are what the function asks for.
    assert_eq!(unsafe { machine::cuMemAlloc_v2(&mut address, 64) }, 700);
}

#[test]
fn counters_tell_bytes_and_launches() {
    let machine = Machine::new(CARD);
    let y = machine.put(&[0f32; N as usize]);
    add_one(&machine, std::ptr::null_mut(), y);
    machine.get::<f32>(y, 10);
    assert_eq!(machine.counter("n_launches"), 1);
    assert_eq!((machine.counter("to_device_bytes"), machine.counter("to_host_bytes")), (4000, 40));
    assert_eq!((machine.counter("adds_one read_bytes"), machine.counter("adds_one written_bytes")), (4000, 4000));
    assert!(machine.counter("adds_one sectors_read_bytes").abs_diff(4000) <= 32);
    assert_eq!(machine.counter("n_findings"), 0);
}
