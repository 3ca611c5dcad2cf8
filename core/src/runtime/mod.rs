//! What is loaded, and what it is doing. Owns the engine's worker; one model, one answer at a time.
//!
//! Blocking: a load and an answer hold their caller until they end. Everything that ends them early (unload, another
//! load, stop, a caller that has gone) may come from any thread at any time.

mod answering;
mod cards;
mod ladder;
pub mod sampling;
mod watch;

pub use answering::{Answering, Step};
use ladder::{Ladder, LoadStop};
use watch::Watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tandem_engine::Flow;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::{ModelFacts, Refusal};
use tandem_engine::model::LoadOptions;
use tandem_engine::token::Tokenizer;
use tandem_engine::worker::{GenerateStats, LoadEvent as EngineLoadEvent, Ready, Worker};

use crate::calibrate::{Answered, machine_name, outcome};
use crate::error::{Explain, cancelled, spoiled_card};
use crate::hardware::Prober;
use crate::library::Library;
use crate::plan::{self, Engine, Forecast, Outline, PlanRefusal, check_loadable};
use crate::prompt::Template;
use crate::wire::{
    CardMemory, ErrorCode, Failure, FileUse, Hardware, LibraryModel, LoadEvent, LoadRequest, Outcome, Part, Phase,
    Plan, RuntimeState, Sampling, Text, Wishes,
};

/// What a desktop with a browser holds of a card: nothing to complain of.
const DESKTOP_VRAM_BYTES: u64 = 768 << 20;

/// What the runtime tells without being asked.
pub enum Change {
    /// Another state, or progress of a load.
    State(RuntimeState),
    /// The engine does something else now.
    Phase,
    /// An answer has ended that tells something about its prediction.
    Answered(Box<Outcome>),
}

/// The loaded model and the engine that runs it.
pub struct Runtime {
    worker: Worker,
    library: Arc<Library>,
    prober: Arc<Prober>,
    on_change: Box<dyn Fn(Change) + Send + Sync>,
    shared: Mutex<Shared>,
    /// Held while a model is being loaded.
    loading: Mutex<()>,
    /// Held while an answer is being written.
    answering: Mutex<()>,
}

/// A model that is ready.
pub struct Loaded {
    /// Which one.
    pub model: LibraryModel,
    /// How it runs.
    pub plan: Plan,
    /// What was given up because memory was short, or the card failed.
    pub given_up: Option<Text>,
    /// What it holds on graphics cards.
    pub cards: Vec<CardMemory>,
    load_ms: f64,
    wishes: Wishes,
    outline: Outline,
    /// Memory that programs could take just before.
    ram_available_bytes: u64,
    /// How fast it should be.
    pub forecast: Forecast,
    /// The machine that this is true of.
    machine: String,
    is_measured: bool,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template.
    pub template: Template,
    /// Its makers' recommendation.
    pub recommended: Sampling,
    /// Most tokens of a conversation.
    pub context_length: usize,
}

struct Shared {
    state: RuntimeState,
    loaded: Option<Arc<Loaded>>,
    /// Counts loads and unloads: whoever began under another number has been overtaken.
    turn: u64,
    /// Set to stop the answer that is being written.
    stop: Arc<AtomicBool>,
    phase: Phase,
    tokens_per_s: Option<f64>,
    watch: Watch,
}

impl Runtime {
    /// Starts the engine's thread; nothing is loaded.
    pub fn new(
        library: Arc<Library>,
        prober: Arc<Prober>,
        on_change: Box<dyn Fn(Change) + Send + Sync>,
    ) -> Result<Self, EngineError> {
        let shared = Shared {
            state: RuntimeState::Empty,
            loaded: None,
            turn: 0,
            stop: Arc::default(),
            phase: Phase::Empty,
            tokens_per_s: None,
            watch: Watch::default(),
        };
        Ok(Self {
            worker: Worker::spawn()?,
            library,
            prober,
            on_change,
            shared: Mutex::new(shared),
            loading: Mutex::new(()),
            answering: Mutex::new(()),
        })
    }

    /// What is loaded, or on its way.
    pub fn state(&self) -> RuntimeState {
        self.shared().state.clone()
    }

    /// What the engine does, and how fast: now, or when it last did something.
    pub fn activity(&self) -> (Phase, Option<f64>) {
        let shared = self.shared();
        (shared.phase, shared.tokens_per_s)
    }

    /// The model that is ready, if one is.
    pub fn loaded(&self) -> Option<Arc<Loaded>> {
        self.shared().loaded.clone()
    }

    /// How a library model would run now, with the present one unloaded.
    pub fn plan(&self, request: &LoadRequest) -> Result<Plan, Failure> {
        let model = self.library.get(&request.model_id)?;
        let facts = ModelFacts::from_file(Path::new(&model.path))?;
        facts.refusal()?;
        Ok(plan::plan(&facts, &self.hardware(Path::new(&model.path)), &request.wishes)?)
    }

    /// Loads a model in place of the present one. Ends an answer that is being written and a load that is under way.
    ///
    /// on       gets progress, then `Ready` or `Failed`; `Break` cancels
    pub fn load(&self, request: &LoadRequest, on: &mut dyn FnMut(LoadEvent) -> Flow) {
        let turn = self.overtake();
        self.worker_stops();
        let one_at_a_time = lock(&self.loading);
        let result = self.try_load(request, turn, on);
        drop(one_at_a_time);
        let last = match result {
            Ok(loaded) => LoadEvent::Ready {
                plan: Box::new(loaded.plan.clone()),
                load_ms: loaded.load_ms,
                given_up: loaded.given_up.clone(),
                cards: loaded.cards.clone(),
            },
            Err(failure) => {
                let model_id = request.model_id.clone();
                let state = match failure.code {
                    ErrorCode::Cancelled => RuntimeState::Empty,
                    _ => RuntimeState::Failed { model_id, failure: failure.clone() },
                };
                self.enter(turn, state, None);
                LoadEvent::Failed { failure }
            }
        };
        // It has ended whatever the caller says.
        let _ = on(last);
    }

    /// Frees the model, and stops a load or an answer that is under way.
    pub fn unload(&self) {
        let turn = self.overtake();
        self.worker_stops();
        self.enter(turn, RuntimeState::Empty, None);
    }

    /// Unloads if this is the model that is loaded, or on its way.
    pub fn unload_if(&self, model_id: &str) {
        let is_it = match self.state() {
            RuntimeState::Loading { model_id: id, .. } | RuntimeState::Ready { model_id: id, .. } => id == model_id,
            RuntimeState::Empty | RuntimeState::Failed { .. } => false,
        };
        if is_it {
            self.unload();
        }
    }

    /// Stops the answer that is being written, if one is.
    pub fn stop_answer(&self) {
        self.shared().stop.store(true, Ordering::Relaxed);
    }

    /// Returns when no answer is being written.
    pub fn wait_until_idle(&self) {
        drop(lock(&self.answering));
    }

    /// Takes the engine for one answer.
    pub fn begin(&self) -> Result<Answering<'_>, Failure> {
        let taken = match self.answering.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy()),
        };
        let mut shared = self.shared();
        let loaded = shared.loaded.clone().ok_or_else(|| EngineError::NotLoaded.explain())?;
        shared.stop = Arc::default();
        Ok(Answering::new(self, loaded, Arc::clone(&shared.stop), taken))
    }

    fn try_load(
        &self,
        request: &LoadRequest,
        turn: u64,
        on: &mut dyn FnMut(LoadEvent) -> Flow,
    ) -> Result<Arc<Loaded>, Failure> {
        let model = self.library.get(&request.model_id)?;
        if let Some(refusal) = model.refusal {
            return Err(refusal);
        }
        self.enter(turn, RuntimeState::Loading { model_id: model.id.clone(), progress: 0.0 }, None);
        let path = PathBuf::from(&model.path);
        let facts = ModelFacts::from_file(&path)?;
        facts.refusal()?;
        let template = Template::from_facts(&facts);
        let outline = Outline::of(&facts)?;
        let mut ladder = Ladder::new(&request.wishes);
        let mut card_fault = None;
        let (plan, hardware, ready) = loop {
            let hardware = self.hardware(&path);
            let plan = match plan::plan_outline(&outline, &hardware, ladder.wishes(), Engine::of(&hardware)) {
                Err(PlanRefusal::NoRoom { .. }) if ladder.step_to_the_end() => continue,
                planned => planned?,
            };
            check_loadable(&plan)?;
            match self.run_load(&path, plan::load_options(&plan)?, &model.id, turn, on) {
                Ok(ready) => break (plan, hardware, ready),
                Err(stop) if ladder.step(&plan, &stop) => {}
                // Slower is better than not at all.
                Err(stop) if plan::is_card_used(&plan) && stop.failure.code == ErrorCode::GpuFailed => {
                    self.spoil(stop.spoiled, &stop.failure.message);
                    card_fault = Some(stop.failure.message);
                    ladder.leave_card();
                }
                Err(stop) => return Err(stop.failure),
            }
        };
        let forecast = plan::forecast(&facts, &hardware, &plan)?;
        let n_gpu_layers = if card_fault.is_some() { Some(0) } else { request.wishes.n_gpu_layers };
        let without_card = card_fault.as_ref().map(ladder::without_card);
        let wished = Wishes { n_gpu_layers, ..request.wishes.clone() };
        let given_up = ladder::joined(without_card, given_up(&outline, &hardware, &wished, &plan));
        let cards = cards::card_memory(&plan, &hardware, &ready.gpu_memory);
        let tokenizer = ready.tokenizer.ok_or_else(|| Refusal::NoTokenizer.explain())?;
        let loaded = Loaded {
            forecast,
            machine: machine_name(&hardware),
            is_measured: hardware.measured.rates.is_some(),
            recommended: sampling::recommended(&facts),
            context_length: ready.context_length,
            load_ms: ready.load_ms,
            wishes: request.wishes.clone(),
            ram_available_bytes: hardware.ram_available_bytes,
            model,
            plan,
            given_up,
            cards,
            outline,
            tokenizer,
            template,
        };
        let loaded = Arc::new(loaded);
        if self.enter(turn, loaded.state(None), Some(Arc::clone(&loaded))) { Ok(loaded) } else { Err(cancelled()) }
    }

    /// Lets the worker load, and passes its progress on.
    fn run_load(
        &self,
        path: &Path,
        options: LoadOptions,
        model_id: &str,
        turn: u64,
        on: &mut dyn FnMut(LoadEvent) -> Flow,
    ) -> Result<Ready, LoadStop> {
        let (sender, events) = channel();
        let send = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Break };
        let token = {
            // Under the lock: an unload comes before this, and is seen, or after it, and revokes it.
            let shared = self.shared();
            if shared.turn != turn {
                return Err(cancelled().into());
            }
            self.worker.load(path, options, Box::new(send))
        };
        let mut shown = 0.0;
        let mut is_cancelled = false;
        for event in events {
            match event {
                EngineLoadEvent::Progress(progress) => {
                    let progress = f64::from(progress);
                    if progress - shown < 0.01 {
                        continue;
                    }
                    shown = progress;
                    self.enter(turn, RuntimeState::Loading { model_id: model_id.to_owned(), progress }, None);
                    if on(LoadEvent::Progress { progress }) == Flow::Break {
                        token.cancel();
                        is_cancelled = true;
                    }
                }
                EngineLoadEvent::Ready(_) if is_cancelled => {
                    // It was done before it heard of it.
                    self.worker.unload();
                    return Err(cancelled().into());
                }
                EngineLoadEvent::Ready(ready) => return Ok(ready),
                EngineLoadEvent::Failed(error) => return Err(error.into()),
            }
        }
        Err(cancelled().into())
    }

    /// To be called about once a second: whether another plan would help by now, since free memory has changed.
    pub fn watch(&self) {
        let Some(loaded) = self.loaded() else { return };
        let (turn, is_due) = {
            let mut shared = self.shared();
            (shared.turn, shared.phase == Phase::Idle && shared.watch.is_due())
        };
        if !is_due {
            return;
        }
        let hardware = self.hardware(Path::new(&loaded.model.path));
        let more_bytes = hardware.ram_available_bytes as i64 - loaded.ram_available_bytes as i64;
        let fresh = plan::plan_outline(&loaded.outline, &hardware, &loaded.wishes, Engine::of(&hardware)).ok();
        let offer = fresh.and_then(|fresh| watch::offer(&loaded.plan, &fresh, more_bytes));
        let Some(offer) = self.shared().watch.saw(offer) else { return };
        let state = loaded.state(offer);
        if self.state() != state {
            self.enter(turn, state, Some(loaded));
        }
    }

    /// The machine as it will be when the present model has gone.
    fn hardware(&self, path: &Path) -> Hardware {
        let mut hardware = self.prober.hardware(path);
        if let Some(loaded) = self.loaded() {
            let held_bytes = held_bytes(&loaded.plan);
            hardware.ram_available_bytes =
                hardware.ram_total_bytes.min(hardware.ram_available_bytes.saturating_add(held_bytes));
            for card in &loaded.cards {
                let held_bytes = cards::held_bytes(card);
                for gpu in hardware.gpus.iter_mut().filter(|gpu| gpu.index == card.index) {
                    let free_bytes = gpu.vram_free_bytes.saturating_add(held_bytes);
                    gpu.vram_free_bytes = free_bytes.min(gpu.vram_total_bytes);
                }
            }
        }
        hardware
    }

    /// What an answer's error says of a card.
    fn failed(&self, error: &EngineError) {
        if let EngineError::Cuda(error) = error {
            self.spoil(spoiled_card(error), &error.explain().message);
        }
    }

    /// A card that has failed is not planned for again.
    fn spoil(&self, card: Option<u32>, why: &Text) {
        if let Some(index) = card {
            self.prober.spoil_card(index, why.clone());
        }
    }

    /// Takes the next number: what is under way sees that it has been overtaken.
    fn overtake(&self) -> u64 {
        let mut shared = self.shared();
        shared.turn += 1;
        shared.stop.store(true, Ordering::Relaxed);
        shared.turn
    }

    /// Stops everything that the worker does, and frees the model.
    fn worker_stops(&self) {
        self.shared().loaded = None;
        self.worker.unload();
    }

    /// Enters a state, unless overtaken.
    fn enter(&self, turn: u64, state: RuntimeState, loaded: Option<Arc<Loaded>>) -> bool {
        {
            let mut shared = self.shared();
            if shared.turn != turn {
                return false;
            }
            shared.phase = match &state {
                RuntimeState::Empty | RuntimeState::Failed { .. } => Phase::Empty,
                RuntimeState::Loading { .. } => Phase::Loading,
                RuntimeState::Ready { .. } => Phase::Idle,
            };
            shared.state = state.clone();
            shared.loaded = loaded;
        }
        (self.on_change)(Change::State(state));
        true
    }

    /// Notes what an answer is doing.
    fn note(&self, phase: Phase, tokens_per_s: Option<f64>) {
        let is_new = {
            let mut shared = self.shared();
            let phase = if shared.loaded.is_some() { phase } else { shared.phase };
            shared.tokens_per_s = tokens_per_s.or(shared.tokens_per_s);
            std::mem::replace(&mut shared.phase, phase) != phase
        };
        if is_new {
            (self.on_change)(Change::Phase);
        }
    }

    /// Tells what an answer showed about its prediction.
    fn report(&self, loaded: &Loaded, stats: &GenerateStats) {
        let answered = Answered {
            model: &loaded.model.name,
            forecast: &loaded.forecast,
            machine: &loaded.machine,
            is_measured: loaded.is_measured,
            n_threads: loaded.plan.n_threads,
            stats,
        };
        if let Some(outcome) = outcome(&answered) {
            (self.on_change)(Change::Answered(Box::new(outcome)));
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

impl Loaded {
    fn state(&self, offer: Option<Text>) -> RuntimeState {
        RuntimeState::Ready {
            model_id: self.model.id.clone(),
            plan: Box::new(self.plan.clone()),
            load_ms: self.load_ms,
            given_up: self.given_up.clone(),
            cards: self.cards.clone(),
            offer,
        }
    }
}

/// What a plan gave up because others hold memory, if anything; into the log as well.
fn given_up(outline: &Outline, hardware: &Hardware, wishes: &Wishes, plan: &Plan) -> Option<Text> {
    let mut ample = hardware.clone();
    ample.ram_available_bytes = ample.ram_total_bytes;
    for gpu in &mut ample.gpus {
        gpu.vram_free_bytes = gpu.vram_free_bytes.max(gpu.vram_total_bytes.saturating_sub(DESKTOP_VRAM_BYTES));
    }
    let ample = plan::plan_outline(outline, &ample, wishes, Engine::of(&ample)).ok()?;
    let given_up = ladder::given_up(&ample, plan)?;
    tracing::warn!(sentence = given_up.en, "the load gave something up");
    Some(given_up)
}

/// Main memory that a loaded model gives back when it goes.
pub(super) fn held_bytes(plan: &Plan) -> u64 {
    // Mapped weights are pages of a file: the system counts them as available already.
    let is_held = |part: Part| plan.file_use == FileUse::Copied || matches!(part, Part::Kv | Part::Buffers);
    let held = plan.ram_bar.parts.iter().filter(|part| is_held(part.part));
    held.fold(0, |sum, part| sum.saturating_add(part.bytes))
}

/// A panic while holding one of these leaves nothing half-done: each holds plain values that are set in one go.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn busy() -> Failure {
    Failure::new(
        ErrorCode::Busy,
        Text::new("another answer is being written", "正在生成另一个回答"),
        Text::new("wait for its end, or stop it", "等待其结束，或将其停止"),
    )
}
