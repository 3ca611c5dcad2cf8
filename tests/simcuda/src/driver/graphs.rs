//! Graphs: calls that were noted while a stream was captured, and are done again with each launch.
//!
//! A capture notes calls in order, each with the branch (stream) it was made on. Branches join a capture by waiting for an
//! event recorded in it, and must be waited for by the first one before it ends.

use std::collections::HashMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::Arc;

use super::queue::Work;
use super::{
    Code, Done, Driver, INVALID_VALUE, Refusal, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNJOINED, add, at, at_mut,
    call, handle, index, take, write,
};

/// A capture in progress.
pub(crate) struct Capture {
    calls: Vec<Call>,
    /// Streams by branch; the first is where it began.
    streams: Vec<usize>,
    n_records: usize,
    /// Branch and number of its calls at each record.
    records: Vec<(usize, usize)>,
    /// Calls of each branch that the first branch does not know to be done.
    n_calls: Vec<usize>,
    /// For each branch: how many calls of each branch are before its end.
    known: Vec<Vec<usize>>,
    known_at_record: Vec<Vec<usize>>,
    pub(crate) is_global: bool,
}

/// What was captured.
pub(crate) struct Graph {
    calls: Vec<Call>,
    n_branches: usize,
}

/// A graph that can be launched: streams for its branches but the first.
pub(crate) struct Instance {
    graph: Arc<Graph>,
    streams: Vec<usize>,
}

/// One call.
enum Call {
    Work {
        branch: usize,
        name: String,
        work: Work,
    },
    /// Records are numbered.
    Record {
        branch: usize,
    },
    Wait {
        branch: usize,
        record: usize,
    },
}

impl Driver {
    /// Notes work on a branch of a capture.
    pub(crate) fn note(&mut self, capture: usize, branch: usize, name: &str, work: Work) -> Done {
        let capture = at_mut(&mut self.captures, capture)?;
        capture.n_calls[branch] += 1;
        capture.known[branch][branch] = capture.n_calls[branch];
        capture.calls.push(Call::Work { branch, name: name.to_owned(), work });
        Ok(())
    }

    /// Notes that an event is recorded.
    pub(crate) fn note_record(&mut self, capture: usize, branch: usize) -> Done<usize> {
        let capture = at_mut(&mut self.captures, capture)?;
        capture.calls.push(Call::Record { branch });
        capture.records.push((branch, capture.n_calls[branch]));
        capture.known_at_record.push(capture.known[branch].clone());
        capture.n_records += 1;
        Ok(capture.n_records - 1)
    }

    /// Notes that a stream waits for a record; it takes part from then on.
    pub(crate) fn note_wait(&mut self, stream: usize, number: usize, record: usize) -> Done {
        let joined = at(&self.streams, stream)?.capture;
        let capture = at_mut(&mut self.captures, number)?;
        let branch = match joined {
            Some((other, branch)) if other == number => branch,
            Some(_) => return Err(Refusal::new(STREAM_CAPTURE_INVALIDATED, "an event of another capture")),
            None => {
                capture.streams.push(stream);
                capture.n_calls.push(0);
                for known in &mut capture.known {
                    known.push(0);
                }
                capture.known.push(vec![0; capture.streams.len()]);
                capture.streams.len() - 1
            }
        };
        let there = capture.known_at_record[record].clone();
        for (mine, theirs) in capture.known[branch].iter_mut().zip(there) {
            *mine = (*mine).max(theirs);
        }
        capture.calls.push(Call::Wait { branch, record });
        at_mut(&mut self.streams, stream)?.capture = Some((number, branch));
        Ok(())
    }

    /// Whether a capture forbids what would make streams wait.
    pub(crate) fn is_captured_globally(&self) -> bool {
        self.captures.iter().flatten().any(|capture| capture.is_global)
    }

    fn begin_capture(&mut self, stream: usize, mode: c_int) -> Done {
        if at(&self.streams, stream)?.capture.is_some() {
            return Err(Refusal::new(super::STREAM_CAPTURE_UNSUPPORTED, "the stream is captured already"));
        }
        let capture = Capture {
            calls: Vec::new(),
            streams: vec![stream],
            n_records: 0,
            records: Vec::new(),
            n_calls: vec![0],
            known: vec![vec![0]],
            known_at_record: Vec::new(),
            is_global: mode == GLOBAL,
        };
        let number = add(&mut self.captures, capture);
        at_mut(&mut self.streams, stream)?.capture = Some((number, 0));
        Ok(())
    }

    fn end_capture(&mut self, stream: usize) -> Done<usize> {
        let Some((number, 0)) = at(&self.streams, stream)?.capture else {
            return Err(Refusal::new(INVALID_VALUE, "no capture began on this stream"));
        };
        let capture = take(&mut self.captures, number)?;
        for &stream in &capture.streams {
            at_mut(&mut self.streams, stream)?.capture = None;
        }
        if capture.known[0] != capture.n_calls {
            return Err(Refusal::new(STREAM_CAPTURE_UNJOINED, "a branch of the capture is not waited for"));
        }
        let graph = Graph { calls: capture.calls, n_branches: capture.streams.len() };
        Ok(add(&mut self.graphs, Arc::new(graph)))
    }

    fn launch_graph(&mut self, instance: usize, stream: usize) -> Done {
        let instance = at(&self.instances, instance)?;
        let (graph, mut streams) = (instance.graph.clone(), vec![stream]);
        streams.extend(&instance.streams);
        if at(&self.streams, stream)?.capture.is_some() {
            return Err(Refusal::new(super::STREAM_CAPTURE_UNSUPPORTED, "a graph within a capture"));
        }
        self.counters.n_graphs += 1;
        let mut records = HashMap::new();
        let mut n_records = 0;
        for call in &graph.calls {
            match call {
                Call::Work { branch, name, work } => {
                    if let Work::Kernel(spec) = work {
                        self.count_launch(spec.card)?;
                    }
                    self.enqueue(streams[*branch], name, work.clone())?;
                }
                Call::Record { branch } => {
                    let stream = streams[*branch];
                    records.insert(n_records, (self.position(stream)?, at(&self.streams, stream)?.clock.clone()));
                    n_records += 1;
                }
                Call::Wait { branch, record } => {
                    let (position, clock) = records[record].clone();
                    self.wait_for(streams[*branch], position, &clock)?;
                }
            }
        }
        Ok(())
    }
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`
const GLOBAL: c_int = 0;

/// Begins to note calls on a stream instead of doing them.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_int) -> Code {
    call("cuStreamBeginCapture_v2", |driver| {
        let stream = driver.stream(stream)?;
        driver.begin_capture(stream, mode)
    })
}

/// Ends a capture and writes its graph.
///
/// # Safety
/// `graph` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> Code {
    call("cuStreamEndCapture", |driver| {
        let stream = driver.stream(stream)?;
        let made = driver.end_capture(stream)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(graph, handle(made)) }
    })
}

/// Tells whether a stream is captured.
///
/// # Safety
/// `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_int) -> Code {
    call("cuStreamIsCapturing", |driver| {
        let stream = driver.stream(stream)?;
        let is_captured = at(&driver.streams, stream)?.capture.is_some();
        // SAFETY: passed on from this function's caller.
        unsafe { write(status, c_int::from(is_captured)) }
    })
}

/// Makes a graph ready to be launched.
///
/// # Safety
/// `instance` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    instance: *mut *mut c_void,
    graph: *mut c_void,
    _flags: c_ulonglong,
) -> Code {
    call("cuGraphInstantiateWithFlags", |driver| {
        let card = driver.card()?;
        let graph = at(&driver.graphs, index(graph)?)?.clone();
        let streams = (1..graph.n_branches).map(|_| driver.new_stream(card, false)).collect();
        let made = add(&mut driver.instances, Instance { graph, streams });
        // SAFETY: passed on from this function's caller.
        unsafe { write(instance, handle(made)) }
    })
}

/// Brings a graph to the card beforehand, which changes nothing here.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphUpload(instance: *mut c_void, _stream: *mut c_void) -> Code {
    call("cuGraphUpload", |driver| at(&driver.instances, index(instance)?).map(|_| ()))
}

/// Queues all calls of a graph.
///
/// # Safety
/// Addresses of the host's that were captured are still valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(instance: *mut c_void, stream: *mut c_void) -> Code {
    call("cuGraphLaunch", |driver| {
        let (instance, stream) = (index(instance)?, driver.stream(stream)?);
        driver.launch_graph(instance, stream)
    })
}

/// Drops an instance; launches in progress are done first.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(instance: *mut c_void) -> Code {
    call("cuGraphExecDestroy", |driver| {
        let instance = take(&mut driver.instances, index(instance)?)?;
        instance.streams.into_iter().try_for_each(|stream| {
            let position = driver.position(stream)?;
            driver.run_until(position)?;
            take(&mut driver.streams, stream).map(|_| ())
        })
    })
}

/// Drops a graph.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> Code {
    call("cuGraphDestroy", |driver| take(&mut driver.graphs, index(graph)?).map(|_| ()))
}
