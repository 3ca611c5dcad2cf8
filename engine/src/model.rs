//! A loaded model: its file mapped, its weights found and checked, its devices open, and the layer loop. It holds no
//! conversation; a session does.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Flow;
use crate::arch::blocks::{Buffers, Sizes, Step};
use crate::arch::{self, Architecture, Loader};
use crate::cpu::{Cpu, Isa};
use crate::cuda::{Gpu, Gpus, STAGING_BYTES};
use crate::damage;
use crate::error::EngineError;
use crate::gguf::{MappedModel, ModelFacts, Piece, TensorFacts};
use crate::kv::{Cache, CacheOptions, KvType, KvTypes, checkpoint_bytes};
use crate::ops::Ops;
use crate::place::{Budget, Device, Footprint, Placement, Staying};
use crate::probe;
use crate::profile::{ProfileRow, Stage};
use crate::token::{Tokenizer, TokenizerError};

/// How to load a model; the planner's answer, as far as it concerns the engine.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where everything goes.
    pub placement: Placement,
    /// What may be allocated where; a device that is not named is not checked.
    pub budgets: Vec<Budget>,
    /// Threads that compute.
    pub n_threads: usize,
    /// Instruction set; the best one present if not said.
    pub isa: Option<Isa>,
    /// Most tokens that a session holds.
    pub context_length: usize,
    /// How keys and values are stored.
    pub kv_types: KvTypes,
    /// Most prompt tokens that are computed at once.
    pub n_batch: usize,
    /// Most memory for checkpoints: what layers that cannot go back need for it. The first token of a turn, an edit or a
    /// branch comes later without.
    pub checkpoint_bytes: u64,
    /// What is read before the load counts as done.
    pub preload: Preload,
}

/// How much of the weights to read at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// All: the load takes longer and reports progress, the first token is quick.
    Weights,
    /// All, into memory of its own that no other program can have back.
    Copy,
    /// Nothing: pages are read when first used. For models larger than memory.
    Nothing,
}

/// Bytes of checkpoints that serve a long conversation with a model for an ordinary computer: eight of 64 MB.
pub const CHECKPOINT_BYTES: u64 = 512 << 20;

impl LoadOptions {
    /// Everything on the processor, with a cache in f16.
    pub fn all_cpu(facts: &ModelFacts, n_threads: usize, context_length: usize) -> Result<Self, EngineError> {
        Ok(Self {
            placement: Placement::all_cpu(facts.n_layers()? as usize),
            budgets: Vec::new(),
            n_threads,
            isa: None,
            context_length,
            kv_types: KvTypes::both(KvType::F16),
            n_batch: 128,
            checkpoint_bytes: CHECKPOINT_BYTES,
            preload: Preload::Weights,
        })
    }
}

/// What a session holds on a GPU, as it was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// Which one.
    pub device: Device,
    /// Weights.
    pub weight_bytes: u64,
    /// Caches and states.
    pub kv_bytes: u64,
    /// Buffers of the forward pass, and the ring for what is small.
    pub buffer_bytes: u64,
    /// What is free on the card now, whoever has the rest; 0 if the driver does not say.
    pub free_bytes: u64,
}

/// A loaded model.
pub struct Model {
    architecture: Box<dyn Architecture>,
    sizes: Sizes,
    ops: Ops,
    tokenizer: Option<Arc<Tokenizer>>,
    options: LoadOptions,
    staying: Vec<Staying>,
    footprint: Footprint,
    file: Arc<MappedModel>,
}

impl Model {
    /// Opens a file, finds and checks its weights and reads them into memory.
    ///
    /// on       called with the part that is done, 0 to 1; `Break` cancels
    /// Errors   anything wrong with the file or the options; `Cancelled`
    pub fn load(path: &Path, options: &LoadOptions, on: &mut dyn FnMut(f32) -> Flow) -> Result<Self, EngineError> {
        go_on(on(0.0))?;
        let mut file = Arc::new(MappedModel::open(path)?);
        let facts = &file.facts;
        let n_layers = facts.n_layers()? as usize;
        let mut options = options.checked()?;
        options.placement.check(n_layers)?;
        let (placement, staying) = options.placement.with_kernels(facts);
        options.placement = placement;
        staying.iter().for_each(|staying| tracing::warn!("{staying}"));
        let gpus = Gpus::open(&options.placement)?;
        let moved = Moved::new(facts, &options, on);
        let on_copied = |n_bytes| moved.add(n_bytes);
        let find_weights = |file: &Arc<MappedModel>| {
            let (placement, context_length) = (options.placement.clone(), options.context_length);
            arch::load(&Loader::new(Arc::clone(file), placement, gpus.clone(), context_length, &on_copied))
        };
        let mut architecture = find_weights(&file)?;
        let tokenizer = match Tokenizer::from_facts(facts) {
            Ok(tokenizer) => Some(Arc::new(tokenizer)),
            Err(TokenizerError::Absent) => None,
            Err(error) => return Err(error.into()),
        };
        let sizes = arch::sizes(architecture.as_ref(), facts);
        let shapes: Vec<_> = (0..n_layers).map(|layer| architecture.cache_shape(layer)).collect();
        shapes.iter().try_for_each(|shape| shape.check(options.kv_types))?;
        let kv_bytes = shapes.iter().map(|shape| shape.n_bytes(&options.cache())).collect();
        let on_gpu = |gpu: &Arc<Gpu>| (Device::Cuda(gpu.index()), gpu.allocated_bytes());
        let footprint = Footprint {
            weight_bytes: gpus.iter().map(on_gpu).collect(),
            kv_bytes,
            checkpoint_bytes: checkpoint_bytes(&shapes, &options.cache()),
            buffer_bytes: sizes.n_bytes(options.n_batch),
        };
        options.placement.check_budgets(&footprint, &options.budgets)?;
        match options.preload {
            Preload::Weights => read_pages(&file, &options.placement, &moved)?,
            Preload::Copy => {
                file = Arc::new(file.copied(&mut |done| moved.tell(done))?);
                // First what it holds on a card, so that this is not there twice.
                drop(architecture);
                architecture = find_weights(&file)?;
            }
            Preload::Nothing => {}
        }
        let ops = Ops::new(Cpu::new(options.isa.unwrap_or_else(Isa::best), options.n_threads)?, gpus);
        ops.check_results(&file, &options.placement, options.kv_types)?;
        go_on(moved.tell(1.0))?;
        Ok(Self { architecture, sizes, ops, tokenizer, options, staying, footprint, file })
    }

    /// A model of a test's own making, with the tokenizer of `file`.
    #[cfg(test)]
    pub(crate) fn of(
        architecture: Box<dyn Architecture>,
        options: LoadOptions,
        file: MappedModel,
    ) -> Result<Self, EngineError> {
        let ops = Ops::new(Cpu::new(Isa::best(), options.n_threads)?, Gpus::default());
        let tokenizer = Some(Arc::new(Tokenizer::from_facts(&file.facts)?));
        let (sizes, footprint) = (architecture.sizes(), Footprint::default());
        let staying = Vec::new();
        Ok(Self { sizes, architecture, ops, tokenizer, options, staying, footprint, file: Arc::new(file) })
    }

    /// What the file's header says.
    pub fn facts(&self) -> &ModelFacts {
        &self.file.facts
    }

    /// How it was loaded; its placement is what was done, without what stays with the processor.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// What stays with the processor although the placement that was asked for has it on a GPU.
    pub fn staying(&self) -> &[Staying] {
        &self.staying
    }

    /// What a session of it allocates, as it was counted before the load.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// The same with a profile that collects; operations take a little longer.
    pub fn profiled(self) -> Self {
        Self { ops: self.ops.profiled(), ..self }
    }

    /// What operations took since the last call, the longest first; nothing unless the model is profiled.
    pub fn take_profile(&self) -> Vec<ProfileRow> {
        self.ops.profile().take()
    }

    /// Bytes per second at which its threads read its own file from memory and do nothing with it: the limit of token
    /// generation.
    ///
    /// n_bytes  how much to read; the file is read again where it is shorter
    pub fn read_rate(&self, n_bytes: u64) -> f64 {
        let (mut n_read, mut time) = (0, Duration::ZERO);
        for (file, facts) in self.file.facts.files.iter().enumerate().cycle() {
            let piece = Piece { file, offset_bytes: 0, n_bytes: facts.file_bytes.min(n_bytes - n_read) };
            let start = Instant::now();
            std::hint::black_box(probe::read(self.ops.cpu(), self.file.bytes(piece)));
            time += start.elapsed();
            n_read += piece.n_bytes;
            if n_read >= n_bytes {
                break;
            }
        }
        n_read as f64 / time.as_secs_f64().max(1e-9)
    }

    /// The tokenizer, unless the file has none.
    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.tokenizer.as_ref()
    }

    /// Size of the vocabulary, and so of a row of logits.
    pub fn n_vocab(&self) -> usize {
        self.architecture.n_vocab()
    }

    /// Layers.
    pub fn n_layers(&self) -> usize {
        self.options.placement.layers.len()
    }

    /// The error by the name of the damaged weight, if one is to blame for logits that are no numbers.
    ///
    /// on       called before each tensor is read through; `Break` ends the search
    pub(crate) fn blamed(&self, error: EngineError, on: &mut dyn FnMut() -> Flow) -> EngineError {
        damage::name_the_weight(error, &self.file, on)
    }

    /// Allocates caches and buffers of one session; and says what its GPUs hold then.
    pub(crate) fn allocate(&self) -> Result<(Cache, Buffers, Vec<GpuMemory>), EngineError> {
        let layers = self.options.placement.layers.iter().enumerate();
        let shapes: Vec<_> = layers.map(|(layer, place)| (self.architecture.cache_shape(layer), place.kv)).collect();
        let gpus = self.ops.gpus();
        let allocated = || gpus.iter().map(|gpu| gpu.allocated_bytes()).collect::<Vec<_>>();
        let before = allocated();
        let cache = Cache::new(&shapes, gpus, &self.options.cache())?;
        let with_cache = allocated();
        let buffers = Buffers::new(gpus, &self.sizes, self.architecture.ropes(), self.options.n_batch)?;
        let memory = gpus.iter().zip(before).zip(with_cache).map(|((gpu, before), with_cache)| GpuMemory {
            device: Device::Cuda(gpu.index()),
            weight_bytes: before,
            kv_bytes: with_cache.saturating_sub(before),
            buffer_bytes: gpu.allocated_bytes().saturating_sub(with_cache) + STAGING_BYTES as u64,
            free_bytes: gpu.free_bytes(),
        });
        let memory: Vec<_> = memory.collect();
        memory.iter().for_each(|memory| self.log(memory));
        Ok((cache, buffers, memory))
    }

    /// Says what a GPU holds: as it was counted before, part by part, and as it was allocated.
    fn log(&self, memory: &GpuMemory) {
        let [weights, caches, buffers, _] = self.options.placement.parts(&self.footprint, memory.device);
        tracing::info!(weights, caches, buffers, ?memory, "memory of a GPU, bytes: counted before, and allocated");
    }

    pub(crate) fn step<'a>(
        &'a self,
        tokens: &'a [u32],
        first_pos: usize,
        cache: &'a mut Cache,
        buffers: &'a mut Buffers,
    ) -> Step<'a> {
        Step { ops: &self.ops, tokens, first_pos, cache, buffers }
    }

    /// Takes tokens through all layers: the loop that obeys the placement.
    ///
    /// on_half  called before every half of a layer with the number of halves done; `Break` cancels
    /// Errors   `Cancelled`; what went wrong on a GPU
    pub(crate) fn forward(
        &self,
        step: &mut Step<'_>,
        on_half: &mut dyn FnMut(usize) -> Flow,
    ) -> Result<(), EngineError> {
        let placement = &self.options.placement;
        let profile = self.ops.profile();
        let n_tokens = step.n_tokens();
        profile.enter(Stage::Embed);
        step.buffers.experts.uses.begin_step();
        for angles in &mut step.buffers.angles {
            self.ops.set_positions(angles, step.first_pos, n_tokens);
        }
        self.architecture.embed(step);
        for (layer, place) in placement.layers.iter().enumerate() {
            go_on(on_half(2 * layer))?;
            profile.enter(Stage::Mix);
            step.move_to(place.mixer);
            self.architecture.mix(layer, step);
            go_on(on_half(2 * layer + 1))?;
            profile.enter(Stage::Ffn);
            step.move_to(place.ffn.home());
            self.architecture.ffn(layer, step);
            self.ops.check()?;
        }
        Ok(())
    }

    /// Logits of some rows of a step that went through all layers.
    ///
    /// rows     at most `MAX_LOGIT_ROWS`
    /// Errors   what went wrong on a GPU
    pub(crate) fn head(&self, rows: std::ops::Range<usize>, step: &mut Step<'_>) -> Result<(), EngineError> {
        self.ops.profile().enter(Stage::Head);
        step.move_to(self.options.placement.head);
        self.architecture.head(rows, step);
        step.buffers.logits.move_to(Device::Cpu);
        Ok(self.ops.check()?)
    }
}

impl LoadOptions {
    /// The same with counts that make sense.
    fn checked(&self) -> Result<Self, EngineError> {
        if self.context_length == 0 {
            return Err(EngineError::ContextLength { asked: 0 });
        }
        let n_batch = self.n_batch.clamp(1, self.context_length);
        Ok(Self { n_batch, n_threads: self.n_threads.max(1), ..self.clone() })
    }

    fn cache(&self) -> CacheOptions {
        CacheOptions {
            n_positions: self.context_length,
            n_batch: self.n_batch,
            types: self.kv_types,
            checkpoint_bytes: self.checkpoint_bytes,
        }
    }
}

/// What a load has moved of what it must: weights to GPUs and, where they are read ahead, those of the processor into memory.
struct Moved<'a> {
    on: RefCell<&'a mut dyn FnMut(f32) -> Flow>,
    preload: Preload,
    n_bytes: Cell<u64>,
    total_bytes: u64,
}

impl<'a> Moved<'a> {
    fn new(facts: &ModelFacts, options: &LoadOptions, on: &'a mut dyn FnMut(f32) -> Flow) -> Self {
        let is_moved = |tensor: &&TensorFacts| {
            options.preload == Preload::Weights || device_of(tensor, &options.placement) != Some(Device::Cpu)
        };
        let moved =
            facts.tensors.iter().filter(is_moved).filter(|tensor| device_of(tensor, &options.placement).is_some());
        let total_bytes = moved.fold(0, |sum, tensor| tensor.n_bytes.saturating_add(sum));
        Self { on: RefCell::new(on), preload: options.preload, n_bytes: Cell::new(0), total_bytes }
    }

    /// So many bytes more.
    fn add(&self, n_bytes: u64) -> Flow {
        self.n_bytes.set(self.n_bytes.get().saturating_add(n_bytes));
        match self.preload {
            // Its copy is what takes long.
            Preload::Copy => self.tell(0.0),
            // A head that is the embedding is moved twice.
            _ => self.tell((self.n_bytes.get() as f32 / self.total_bytes.max(1) as f32).min(1.0)),
        }
    }

    fn tell(&self, done: f32) -> Flow {
        (self.on.borrow_mut())(done)
    }
}

/// Where a tensor lives; none for those of layers that are not run.
fn device_of(tensor: &TensorFacts, placement: &Placement) -> Option<Device> {
    let n_layers = placement.layers.len();
    let is_run = ModelFacts::layer_of(&tensor.name).is_none_or(|(layer, _)| layer < n_layers);
    is_run.then(|| placement.device_of(&tensor.name))
}

/// Touches every page of the processor's weights once, so that the system reads them; not those of layers that are not run.
fn read_pages(file: &MappedModel, placement: &Placement, moved: &Moved<'_>) -> Result<(), EngineError> {
    const PAGE_BYTES: usize = 4096;
    /// Between two reports; a slow disk reads this in about 40 ms.
    const PIECE_BYTES: usize = 4 << 20;
    for tensor in file.facts.tensors.iter().filter(|tensor| device_of(tensor, placement) == Some(Device::Cpu)) {
        for piece in file.tensor_bytes(tensor).chunks(PIECE_BYTES) {
            let sum = piece.iter().step_by(PAGE_BYTES).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            std::hint::black_box(sum);
            go_on(moved.add(piece.len() as u64))?;
        }
    }
    Ok(())
}

/// `Break` as an error.
pub(crate) fn go_on(flow: Flow) -> Result<(), EngineError> {
    match flow {
        Flow::Continue => Ok(()),
        Flow::Break => Err(EngineError::Cancelled),
    }
}
