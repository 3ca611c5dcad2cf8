//! What operations need besides weights and rows: inputs of products in the form that kernels want, angles, partial results.
//! Like rows, they have room on every device that takes part.

use super::refused;
use crate::arch::blocks::Rope;
use crate::cpu::{self, Activations, RopeKind, Rounding};
use crate::cuda::{self, At, Buffer, DeviceInput, Gpu, Gpus};
use crate::error::EngineError;
use crate::place::Device;

/// One buffer on each GPU.
struct OnGpus(Vec<Buffer>);

/// What a product takes: rows in the form that the kernels of their device want.
pub(crate) struct Input {
    activations: Activations,
    gpus: OnGpus,
    device: Device,
    /// That a GPU has room for.
    max_elems: usize,
    /// Of what a GPU holds.
    shape: [usize; 2],
}

/// Routes of a few tokens that a GPU chose and the host does not know: a (token, expert) pair after the other.
pub(crate) struct CardRoutes {
    /// Expert and weight of each pair, then its token and itself.
    gpus: OnGpus,
    max_tokens: usize,
    n_used: usize,
    n_tokens: usize,
}

/// Where the parts of such routes lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRoutes {
    /// [n_pairs] u32
    pub(crate) experts: At,
    /// [n_pairs] f32
    pub(crate) weights: At,
    /// [n_pairs] u32
    pub(crate) tokens: At,
    /// [n_pairs] 0, 1, 2, ..., u32
    pub(crate) pairs: At,
}

/// What attention keeps in between.
pub(crate) struct AttendScratch {
    partials: cpu::AttentionScratch,
    gpus: OnGpus,
}

/// The angles of a rope at the positions of a step.
pub(crate) struct Angles {
    table: cpu::Rope,
    /// Cosines, then sines.
    gpus: OnGpus,
    max_tokens: usize,
}

impl OnGpus {
    fn new(gpus: &Gpus, n_bytes: usize) -> Result<Self, EngineError> {
        Ok(Self(gpus.iter().map(|gpu| Buffer::new(gpu, n_bytes)).collect::<Result<_, _>>()?))
    }

    fn on(&self, gpu: &Gpu) -> &Buffer {
        let own = self.0.iter().find(|buffer| buffer.gpu().index() == gpu.index());
        own.expect("the placement's devices have room for all buffers")
    }
}

impl Input {
    /// Allocates room for `max_rows` rows of `max_width`.
    pub(crate) fn new(gpus: &Gpus, max_rows: usize, max_width: usize, how: Rounding) -> Result<Self, EngineError> {
        let activations = Activations::try_new(max_width, max_rows, how)
            .ok_or_else(|| refused(Activations::n_bytes(max_width, max_rows, how)))?;
        let max_elems = max_rows * max_width;
        let gpus = OnGpus::new(gpus, DeviceInput::n_bytes(max_elems))?;
        Ok(Self { activations, gpus, device: Device::Cpu, max_elems, shape: [0, 0] })
    }

    /// Where it was set last.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// The rows as the processor's kernels take them. Panics if they are on a GPU.
    pub(crate) fn activations(&self) -> &Activations {
        assert_eq!(self.device, Device::Cpu, "an input for the processor");
        &self.activations
    }

    /// The rows as the processor's kernels fill them.
    pub(crate) fn activations_mut(&mut self) -> &mut Activations {
        self.device = Device::Cpu;
        &mut self.activations
    }

    /// The rows as a GPU's kernels take them. Panics if they are not there.
    pub(crate) fn on(&self, gpu: &Gpu) -> DeviceInput {
        assert_eq!(self.device, Device::Cuda(gpu.index()), "an input for {gpu:?}");
        DeviceInput::new(self.gpus.on(gpu).at(), self.max_elems, self.shape)
    }

    /// The rows as a GPU's kernels fill them.
    pub(crate) fn on_mut(&mut self, gpu: &Gpu, shape: [usize; 2]) -> DeviceInput {
        assert!(shape[0] * shape[1] <= self.max_elems, "an input of {shape:?}, room for {}", self.max_elems);
        (self.device, self.shape) = (Device::Cuda(gpu.index()), shape);
        self.on(gpu)
    }
}

impl CardRoutes {
    /// Allocates room for `max_tokens`, each of which goes to `n_used` experts.
    pub(crate) fn new(gpus: &Gpus, max_tokens: usize, n_used: usize) -> Result<Self, EngineError> {
        let n_pairs = max_tokens * n_used;
        let routes = Self { gpus: OnGpus::new(gpus, 4 * n_pairs * size_of::<u32>())?, max_tokens, n_used, n_tokens: 0 };
        for gpu in gpus.iter().filter(|_| n_pairs > 0) {
            let tokens: Vec<u32> = (0..n_pairs).map(|pair| (pair / n_used) as u32).collect();
            let pairs: Vec<u32> = (0..n_pairs as u32).collect();
            gpu.write_and_wait(routes.on(gpu).tokens, &tokens);
            gpu.write_and_wait(routes.on(gpu).pairs, &pairs);
        }
        Ok(routes)
    }

    /// Most tokens.
    pub(crate) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Experts of each token.
    pub(crate) fn n_used(&self) -> usize {
        self.n_used
    }

    /// Says how many tokens there are.
    pub(crate) fn set_tokens(&mut self, n_tokens: usize) {
        assert!(n_tokens <= self.max_tokens, "{n_tokens} tokens, room for {}", self.max_tokens);
        self.n_tokens = n_tokens;
    }

    /// Tokens times experts of each.
    pub(crate) fn n_pairs(&self) -> usize {
        self.n_tokens * self.n_used
    }

    /// The routes as a GPU's kernels take them.
    pub(crate) fn on(&self, gpu: &Gpu) -> DeviceRoutes {
        let n_bytes = self.max_tokens * self.n_used * size_of::<u32>();
        let [experts, weights, tokens, pairs] = [0, 1, 2, 3].map(|i| self.gpus.on(gpu).at().plus(i * n_bytes));
        DeviceRoutes { experts, weights, tokens, pairs }
    }
}

impl AttendScratch {
    /// Allocates for at most so many heads and elements of a head.
    pub(crate) fn new(gpus: &Gpus, n_heads: usize, head_dim: usize) -> Result<Self, EngineError> {
        let bytes = (n_heads * head_dim * size_of::<f32>()) as u64;
        let partials = cpu::AttentionScratch::try_new(n_heads, head_dim).ok_or_else(|| refused(bytes))?;
        Ok(Self { partials, gpus: OnGpus::new(gpus, cuda::scratch_bytes(n_heads, head_dim))? })
    }

    /// Room for the processor's kernels.
    pub(crate) fn partials(&mut self) -> &mut cpu::AttentionScratch {
        &mut self.partials
    }

    /// Room for a GPU's kernels.
    pub(crate) fn on(&mut self, gpu: &Gpu) -> At {
        self.gpus.on(gpu).at()
    }
}

impl Angles {
    /// Allocates room for `max_tokens` positions.
    pub(crate) fn new(gpus: &Gpus, rope: &Rope, max_tokens: usize) -> Result<Self, EngineError> {
        let bytes = rope.options().n_rot * max_tokens * size_of::<f32>();
        let table = cpu::Rope::try_new(&rope.options(), max_tokens).ok_or_else(|| refused(bytes as u64))?;
        Ok(Self { table, gpus: OnGpus::new(gpus, bytes)?, max_tokens })
    }

    /// Works out the angles of a step and sends them to the GPUs.
    pub(crate) fn set_positions(&mut self, first_pos: usize, n_tokens: usize) {
        self.table.set_positions(first_pos, n_tokens);
        for buffer in &self.gpus.0 {
            let (cos, sin) = self.table.angles();
            let [to_cos, to_sin] = self.halves(buffer);
            // SAFETY: ordinary memory, which the driver has read when it returns; the halves have room for so many angles.
            unsafe {
                buffer.gpu().begin_write(to_cos, cos);
                buffer.gpu().begin_write(to_sin, sin);
            }
        }
    }

    /// The angles as the processor's kernels take them.
    pub(crate) fn table(&self) -> &cpu::Rope {
        &self.table
    }

    /// The angles as a GPU's kernels take them: cosines and sines.
    pub(crate) fn on(&self, gpu: &Gpu) -> [At; 2] {
        self.halves(self.gpus.on(gpu))
    }

    /// Pairs of channels that turn, and whether they lie half a head apart.
    pub(crate) fn pairs(&self) -> (usize, bool) {
        (self.table.n_pairs(), self.table.kind() == RopeKind::Neox)
    }

    fn halves(&self, buffer: &Buffer) -> [At; 2] {
        [buffer.at(), buffer.at().plus(self.max_tokens * self.table.n_pairs() * size_of::<f32>())]
    }
}
