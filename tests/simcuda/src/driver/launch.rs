//! Launches: what is asked for is checked against the kernel and the card.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::memory::Place;
use super::queue::Work;
use super::{Code, Done, Driver, INVALID_HANDLE, INVALID_VALUE, Refusal, at, call, index};
use crate::check::memory::Map;
use crate::check::touched::Touched;
use crate::exec::Launch;
use crate::ptx::Kernel;

/// A launch that is queued.
pub(crate) struct Spec {
    pub(crate) card: usize,
    kernel: Arc<Kernel>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: usize,
    params: Vec<u8>,
}

/// Most blocks and threads by dimension. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability".
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];

impl Driver {
    fn check_launch(&self, function: usize, grid: [u32; 3], block: [u32; 3], dynamic_shared: usize) -> Done {
        let function = self.functions.get(function).ok_or(INVALID_HANDLE)?;
        let kernel = &function.kernel;
        let refuse = |message: String| Err(Refusal::new(INVALID_VALUE, format!("{}: {message}", kernel.name)));
        let n_threads: u32 = block.iter().product();
        if n_threads > kernel.max_threads {
            return refuse(format!("{n_threads} threads, its launch bounds are {}", kernel.max_threads));
        }
        let fits = |n: [u32; 3], most: [u32; 3]| n.iter().zip(most).all(|(&n, most)| n > 0 && n <= most);
        if !fits(block, MOST_THREADS) || !fits(grid, MOST_BLOCKS) {
            return refuse(format!("a grid of {grid:?} blocks of {block:?} threads"));
        }
        if dynamic_shared > function.most_dynamic {
            let most = function.most_dynamic;
            return refuse(format!("{dynamic_shared} bytes of dynamic shared memory, {most} are allowed"));
        }
        Ok(())
    }

    /// Counts a launch. A card may be lost by it.
    pub(crate) fn count_launch(&mut self, card: usize) -> Done {
        self.counters.n_launches += 1;
        self.n_launches[card] += 1;
        if let Some((most, code)) = self.settings.cards[card].lost_after
            && self.n_launches[card] > most
        {
            self.lost[card] = Some(code);
        }
        self.check_there(card)
    }

    /// Runs a kernel; yields what it read and wrote.
    pub(crate) fn run_kernel(&mut self, spec: &Spec) -> Done<(Touched, Touched)> {
        let map = self.map(spec.card, &spec.kernel);
        let launch = Launch {
            kernel: &spec.kernel,
            grid: spec.grid,
            block: spec.block,
            params: &spec.params,
            dynamic_shared: spec.dynamic_shared,
            map: &map,
            is_wrong: self.settings.wrong.as_ref().is_some_and(|name| spec.kernel.name.starts_with(name.as_str())),
        };
        let outcome =
            launch.run(self.settings.n_threads).map_err(|finding| self.found(finding.code, finding.to_string()))?;
        let counters = self.counters.kernels.entry(spec.kernel.name.clone()).or_default();
        counters.n_launches += 1;
        counters.n_instructions += outcome.n_instructions;
        counters.read_bytes += outcome.read_bytes;
        counters.written_bytes += outcome.written_bytes;
        counters.sectors_read_bytes += outcome.reads.bytes();
        counters.sectors_written_bytes += outcome.writes.bytes();
        Ok((outcome.reads, outcome.writes))
    }

    /// What a kernel on a card may reach.
    fn map(&mut self, card: usize, kernel: &Kernel) -> Arc<Map> {
        let key = (card, Arc::as_ptr(&kernel.variables).addr());
        if let Some(map) = self.maps.get(&key) {
            return map.clone();
        }
        let reachable = self.regions.iter().filter(|(_, region)| match region.place {
            Place::Card(other) => other == card || self.peers.contains(&(card, other)),
            Place::Pinned | Place::Registered => true,
        });
        let mut regions: Vec<_> = reachable.map(|(&begin, region)| (begin, begin + region.bytes as u64)).collect();
        let variables = kernel.variables.iter();
        regions.extend(variables.map(|variable| (variable.address(), variable.address() + variable.bytes as u64)));
        let map = Arc::new(Map::new(regions));
        self.maps.insert(key, map.clone());
        map
    }
}

/// Queues a kernel.
///
/// # Safety
/// `params` points to as many pointers as the kernel has parameters, each to a value of its parameter's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    call("cuLaunchKernel", |driver| {
        let (function, stream) = (index(function)?, driver.stream(stream)?);
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        driver.check_launch(function, grid, block, dynamic_shared as usize)?;
        let kernel = driver.kernel(function)?;
        let card = at(&driver.streams, stream)?.card;
        if driver.functions[function].card != card {
            return Err(Refusal::new(INVALID_HANDLE, format!("{}: loaded on another card", kernel.name)));
        }
        // SAFETY: passed on from this function's caller.
        let params = unsafe { read_params(&kernel, params, extra) }?;
        if at(&driver.streams, stream)?.capture.is_none() {
            driver.count_launch(card)?;
        }
        let name = kernel.name.clone();
        let spec = Spec { card, kernel, grid, block, dynamic_shared: dynamic_shared as usize, params };
        driver.enqueue(stream, &name, Work::Kernel(Arc::new(spec)))
    })
}

/// Copies of all parameters.
///
/// # Safety
/// As for `cuLaunchKernel`.
unsafe fn read_params(kernel: &Kernel, params: *mut *mut c_void, extra: *mut *mut c_void) -> Done<Vec<u8>> {
    let refuse = |message: String| Err(Refusal::new(INVALID_VALUE, format!("{}: {message}", kernel.name)));
    let mut bytes = vec![0u8; kernel.params_bytes];
    if kernel.params.is_empty() {
        return Ok(bytes);
    }
    if params.is_null() || !extra.is_null() {
        return refuse("parameters must be given one by one".to_owned());
    }
    for (at, param) in kernel.params.iter().enumerate() {
        // SAFETY: by this function's contract.
        let given = unsafe { params.add(at).read() };
        // A value of the right type is aligned; a smaller one on the stack is so only by chance.
        if given.is_null() || !given.addr().is_multiple_of(param.align.max(1)) {
            return refuse(format!("parameter {at} has {} bytes, what is given is smaller", param.bytes));
        }
        let into = &mut bytes[param.offset..param.offset + param.bytes];
        // SAFETY: by this function's contract.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(given.cast(), param.bytes) };
    }
    Ok(bytes)
}
