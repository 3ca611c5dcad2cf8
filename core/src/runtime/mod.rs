//! What is loaded, and what it is doing. Owns the engine's worker; one model, one answer at a time.
//!
//! Blocking: a load and an answer hold their caller until they end. Everything that ends them early (unload, another
//! load, stop, a caller that has gone) may come from any thread at any time.

mod answering;
pub mod sampling;

pub use answering::{Answering, Step};

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
use crate::error::{Explain, cancelled};
use crate::hardware::Prober;
use crate::library::Library;
use crate::plan::{self, Forecast, check_loadable};
use crate::prompt::Template;
use crate::wire::{
    ErrorCode, Failure, Hardware, LibraryModel, LoadEvent, LoadRequest, Outcome, Part, Phase, Plan, RuntimeState,
    Sampling, Text,
};

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
            Ok((plan, load_ms)) => LoadEvent::Ready { plan: Box::new(plan), load_ms },
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
    ) -> Result<(Plan, f64), Failure> {
        let model = self.library.get(&request.model_id)?;
        if let Some(refusal) = model.refusal {
            return Err(refusal);
        }
        self.enter(turn, RuntimeState::Loading { model_id: model.id.clone(), progress: 0.0 }, None);
        let path = PathBuf::from(&model.path);
        let facts = ModelFacts::from_file(&path)?;
        facts.refusal()?;
        let template = Template::from_facts(&facts);
        let hardware = self.hardware(&path);
        let plan = plan::plan(&facts, &hardware, &request.wishes)?;
        check_loadable(&plan)?;
        let options = plan::load_options(&plan)?;
        let ready = self.run_load(&path, options, &model.id, turn, on)?;
        let tokenizer = ready.tokenizer.ok_or_else(|| Refusal::NoTokenizer.explain())?;
        let loaded = Loaded {
            forecast: plan::forecast(&facts, &hardware, plan.n_threads)?,
            machine: machine_name(&hardware),
            is_measured: hardware.measured.rates.is_some(),
            recommended: sampling::recommended(&facts),
            context_length: ready.context_length,
            model,
            plan: plan.clone(),
            tokenizer,
            template,
        };
        let state = RuntimeState::Ready {
            model_id: loaded.model.id.clone(),
            plan: Box::new(plan.clone()),
            load_ms: ready.load_ms,
        };
        if self.enter(turn, state, Some(Arc::new(loaded))) { Ok((plan, ready.load_ms)) } else { Err(cancelled()) }
    }

    /// Lets the worker load, and passes its progress on.
    fn run_load(
        &self,
        path: &Path,
        options: LoadOptions,
        model_id: &str,
        turn: u64,
        on: &mut dyn FnMut(LoadEvent) -> Flow,
    ) -> Result<Ready, Failure> {
        let (sender, events) = channel();
        let send = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Break };
        let token = {
            // Under the lock: an unload comes before this, and is seen, or after it, and revokes it.
            let shared = self.shared();
            if shared.turn != turn {
                return Err(cancelled());
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
                    return Err(cancelled());
                }
                EngineLoadEvent::Ready(ready) => return Ok(ready),
                EngineLoadEvent::Failed(error) => return Err(error.explain()),
            }
        }
        Err(cancelled())
    }

    /// The machine as it will be when the present model has gone.
    fn hardware(&self, path: &Path) -> Hardware {
        let mut hardware = self.prober.hardware(path);
        if let Some(loaded) = self.loaded() {
            // Its weights are pages of a file: the system counts them as available already.
            let held = loaded.plan.lines.iter().filter(|line| matches!(line.part, Part::Kv | Part::Buffers));
            let held_bytes: u64 = held.map(|line| line.bytes).sum();
            hardware.ram_available_bytes =
                hardware.ram_total_bytes.min(hardware.ram_available_bytes.saturating_add(held_bytes));
        }
        hardware
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
