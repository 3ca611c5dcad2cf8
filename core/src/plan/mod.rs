//! How a model would run on a machine, and why: a pure function of the model's header, the machine and the wishes.
//!
//! Sizes come from the tensor table and from per-layer facts, never from a formula per architecture. Every window,
//! command and log prints this one plan. Whether the engine knows the model at all is not asked here: that is
//! `ModelFacts::refusal`.
//!
//! The plan shows where each part would go with the graphics card in use. As long as the engine computes on the
//! processor alone, what must be true now is planned for the processor: memory bar, context, threads, speed and verdict
//! count the whole model in main memory, and `Plan::cpu_computes` says so.
mod kv;
mod load;

mod memory;
mod parts;
mod pick;
mod place;
mod quality;
mod refusal;
mod sizes;
mod speed;
mod words;

#[cfg(test)]
mod tests;

pub use load::load_options;
pub use pick::{Candidate, Pick, pick};
pub use refusal::{PlanRefusal, check_loadable};
pub use speed::Forecast;

use tandem_engine::gguf::ModelFacts;

use crate::wire::{Hardware, Plan, Verdict, Wishes};
use memory::Memory;
use place::Split;
use sizes::Sizes;
use speed::{Prediction, Rates, Work};

/// Context length when nobody asks for another: room for a long conversation at a price that small machines can pay.
const DEFAULT_CONTEXT: u32 = 8192;
/// Shorter contexts are no use for a chat: below this a plan is refused rather than shortened.
const MIN_CONTEXT: u32 = 2048;
/// Tokens per prompt chunk on a graphics card. Source: llama.cpp's default micro-batch.
const GPU_BATCH: u32 = 512;
/// Less than this to spare is tight.
const TIGHT_BYTES: u64 = 512 << 20;

/// Plans a model on a machine as it is now. What the caller will unload first, it adds to the machine's free memory.
pub fn plan(facts: &ModelFacts, hardware: &Hardware, wishes: &Wishes) -> Result<Plan, PlanRefusal> {
    let sizes = Sizes::of(facts)?;
    let threads = Threads::choose(hardware, wishes);
    let rates = Rates::of(hardware, threads.n);
    let work = Work::of(facts, &sizes);
    let n_batch = speed::batch(&work, &rates);
    let memory = memory::choose(&sizes, hardware, wishes, n_batch)?;
    let split = place::split(&sizes, hardware, memory.context, wishes.n_gpu_layers);
    let prediction = speed::predict(&sizes, &work, &rates, &memory, n_batch);
    let verdict = verdict(&prediction, &memory, sizes.weights_bytes());
    let draft = Draft { facts, hardware, wishes, sizes, threads, n_batch, memory, split, prediction, verdict };
    Ok(draft.into_plan())
}

/// How long a token would take on this machine with so many threads, at any depth of the context.
pub fn forecast(facts: &ModelFacts, hardware: &Hardware, n_threads: u32) -> Result<Forecast, PlanRefusal> {
    let work = Work::of(facts, &Sizes::of(facts)?);
    Ok(Forecast::new(&work, &Rates::of(hardware, n_threads)))
}

/// Everything decided, nothing worded.
struct Draft<'a> {
    facts: &'a ModelFacts,
    hardware: &'a Hardware,
    wishes: &'a Wishes,
    sizes: Sizes,
    threads: Threads,
    n_batch: u32,
    memory: Memory,
    split: Option<Split>,
    prediction: Prediction,
    verdict: Verdict,
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
    Wish,
}

impl Threads {
    /// One per physical performance core that this process may use: a second thread on a core, or one on a slow core,
    /// makes all of them wait.
    fn choose(hardware: &Hardware, wishes: &Wishes) -> Self {
        let cpu = &hardware.cpu;
        let n_allowed = cpu.n_allowed_cores.max(1);
        match wishes.n_threads {
            Some(n) => Self { n: n.clamp(1, n_allowed), why: ThreadsWhy::Wish },
            None if n_allowed < cpu.n_performance_cores => Self { n: n_allowed, why: ThreadsWhy::AllowedCores },
            None => Self { n: cpu.n_performance_cores.max(1), why: ThreadsWhy::PerformanceCores },
        }
    }
}

fn verdict(prediction: &Prediction, memory: &Memory, weights_bytes: u64) -> Verdict {
    let rate = prediction.generation.likely;
    let is_mostly_on_disk = memory.missing_bytes > weights_bytes / 2;
    if rate < 1.0 || is_mostly_on_disk {
        Verdict::TooLarge
    } else if memory.spare_bytes < TIGHT_BYTES {
        Verdict::Tight
    } else if rate < 8.0 {
        Verdict::Slow
    } else if rate < 20.0 {
        Verdict::RunsWell
    } else {
        Verdict::Fast
    }
}
