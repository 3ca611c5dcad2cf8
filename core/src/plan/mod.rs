//! How a model would run on a machine, and why: a pure function of the model's header, the machine and the wishes.
//!
//! Sizes come from the tensor table and from per-layer facts, never from a formula per architecture. Every window,
//! command and log prints this one plan. Whether the engine knows the model at all is not asked here: that is
//! `ModelFacts::refusal`.
//!
//! Where a card is there but cannot compute (`Engine::CpuOnly`), what must be true now is planned for the processor: lines,
//! layers, memory bar, context, threads, speed and verdict count the whole model in main memory, and `Plan::cpu_computes`
//! says so and why. What the card could take over is planned beside it: its bar, and llama.cpp's command.
mod cards;
mod choose;
mod kernels;
mod kv;
mod layout;
mod load;
mod parts;
mod pick;
mod place;
mod predict;
mod quality;
mod reads;
mod refusal;
mod sizes;
mod speed;
mod step;
mod warnings;
mod words;

#[cfg(test)]
mod tests;

pub use load::load_options;
pub(crate) use load::{is_card_used, n_expert_layers_on_card, n_layers_on_card};
pub use pick::{Candidate, Pick, pick};
pub use reads::TokenReads;
pub use refusal::{PlanRefusal, check_loadable};
pub use speed::Forecast;
pub(crate) use speed::{N_COLS, PART_BYTES};
pub use step::StepCost;
#[cfg(test)]
pub(crate) use tests::{example, with_card};
pub(crate) use words::tokens_short;

use tandem_engine::gguf::ModelFacts;

use crate::wire::{ContextStep, Hardware, Plan, Wishes};
use choose::{Chooser, Chosen};
use layout::Planner;
use predict::Predictor;
use sizes::Sizes;
use speed::{Rates, Work};

/// Context length when nobody asks for another: room for a long conversation at a price that small machines can pay.
const DEFAULT_CONTEXT: u32 = 8192;
/// Shorter contexts are no use for a chat: below this a plan is refused rather than shortened.
const MIN_CONTEXT: u32 = 2048;
/// Tokens per prompt chunk on a graphics card. Source: llama.cpp's default micro-batch.
const GPU_BATCH: u32 = 512;
/// No chunk of a prompt is larger.
const MAX_BATCH: u32 = 1024;
/// Less than this to spare is tight.
const TIGHT_BYTES: u64 = 512 << 20;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The processor alone; a card is only planned for.
    CpuOnly,
    /// The processor and a graphics card.
    WithGpu,
}

impl Engine {
    /// What computes on a machine.
    pub fn of(hardware: &Hardware) -> Self {
        let can_compute = hardware.gpus.iter().any(|gpu| gpu.unusable.is_none());
        if can_compute { Self::WithGpu } else { Self::CpuOnly }
    }
}

/// What a plan needs of a header: a few kilobytes instead of a vocabulary.
#[derive(Clone, Debug)]
pub struct Outline {
    architecture: String,
    quant: String,
    file_name: String,
    file_bytes: u64,
    sizes: Sizes,
    work: Work,
}

impl Outline {
    /// Adds a header up.
    ///
    /// Errors   what a plan cannot do without is missing, or the engine cannot use it
    pub fn of(facts: &ModelFacts) -> Result<Self, PlanRefusal> {
        let sizes = Sizes::of(facts)?;
        Ok(Self {
            architecture: facts.architecture().unwrap_or_default().to_owned(),
            quant: facts.quant_label(),
            file_name: facts.files.first().map(|file| file.name.clone()).unwrap_or_default(),
            file_bytes: facts.file_bytes,
            work: Work::of(facts, &sizes),
            sizes,
        })
    }
}

/// Plans a model on a machine as it is now. What the caller will unload first, it adds to the machine's free memory.
pub fn plan(facts: &ModelFacts, hardware: &Hardware, wishes: &Wishes) -> Result<Plan, PlanRefusal> {
    plan_outline(&Outline::of(facts)?, hardware, wishes, Engine::of(hardware))
}

/// The same from what was kept of a header, for any engine.
pub fn plan_outline(
    outline: &Outline,
    hardware: &Hardware,
    wishes: &Wishes,
    engine: Engine,
) -> Result<Plan, PlanRefusal> {
    let sizes = &outline.sizes;
    let threads = Threads::choose(hardware, wishes);
    let rates = Rates::of(hardware, threads.n);
    let n_batch = wishes.n_batch.or(wishes.tuned.as_ref().map(|tuned| tuned.n_batch));
    let n_batch = n_batch.map_or_else(|| speed::batch(&outline.work, &rates), |n| n.clamp(1, MAX_BATCH));
    let predictor = Predictor::new(&outline.work, rates, n_batch);
    let planner = Planner { sizes, hardware, wishes, engine, predictor, n_batch };
    let chooser = Chooser::new(&planner);
    let chosen = chooser.choose()?;
    let (contexts, usable_context) = (chooser.steps(), chooser.usable());
    let has_idle_card = engine == Engine::CpuOnly && !hardware.gpus.is_empty();
    let other = Planner { engine: Engine::WithGpu, ..planner.clone() };
    let with_card = if has_idle_card { Chooser::new(&other).choose().ok() } else { None };
    Ok(Draft { outline, planner: &planner, threads, chosen, with_card, contexts, usable_context }.into_plan())
}

/// How long a token would take on this machine as planned, at any depth of the context.
pub fn forecast(facts: &ModelFacts, hardware: &Hardware, plan: &Plan) -> Result<Forecast, PlanRefusal> {
    let work = Work::of(facts, &Sizes::of(facts)?);
    Ok(Forecast::new(&work, &Rates::of(hardware, plan.n_threads), plan.n_batch))
}

/// Everything decided, nothing worded.
struct Draft<'a> {
    outline: &'a Outline,
    planner: &'a Planner<'a>,
    threads: Threads,
    chosen: Chosen,
    /// The same for an engine that uses the card, where there is one that this one does not use.
    with_card: Option<Chosen>,
    contexts: Vec<ContextStep>,
    usable_context: u32,
}

/// Compute threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Threads {
    n: u32,
    why: ThreadsWhy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadsWhy {
    PerformanceCores,
    AllowedCores,
    Tuned,
    Wish,
}

impl Threads {
    /// One per physical performance core that this process may use: a second thread on a core, or one on a slow core,
    /// makes all of them wait.
    fn choose(hardware: &Hardware, wishes: &Wishes) -> Self {
        let cpu = &hardware.cpu;
        let n_allowed = cpu.n_allowed_cores.max(1);
        if let Some(n) = wishes.n_threads {
            return Self { n: n.clamp(1, n_allowed), why: ThreadsWhy::Wish };
        }
        match &wishes.tuned {
            Some(tuned) => Self { n: tuned.n_threads.clamp(1, n_allowed), why: ThreadsWhy::Tuned },
            None if n_allowed < cpu.n_performance_cores => Self { n: n_allowed, why: ThreadsWhy::AllowedCores },
            None => Self { n: cpu.n_performance_cores.max(1), why: ThreadsWhy::PerformanceCores },
        }
    }
}
