//! Auto-tune: a few plans around the predicted best, tried on the real engine, and the fastest safe one kept for this model,
//! machine and context. One choice after the other: threads, then the chunk of prompts, then the cache, then whether the file
//! is mapped or copied into memory. What cannot be varied is said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use tandem_engine::Flow;
use tandem_engine::sample::SamplerSettings;
use tandem_engine::worker::{AtEnd, GenerateRequest, GenerateStats};

use crate::calibrate::machine_name;
use crate::error::{Explain, cancelled};
use crate::hardware::Prober;
use crate::runtime::Runtime;
use crate::store::{Store, now_ms};
use crate::wire::{
    ErrorCode, Failure, FileUse, Hardware, LoadEvent, LoadRequest, Plan, Text, Trial, TuneEvent, Tuned, Tuning,
    Verdict, Wishes,
};

/// Tokens that a trial reads and writes, and the turn that plans are compared by.
const N_PROMPT: usize = 192;
const N_GENERATED: usize = 24;
const TURN_PROMPT: f64 = 256.0;
const TURN_GENERATED: f64 = 256.0;
/// A trial that takes longer is cut off: what it did until then counts.
const TRIAL_TAKES: Duration = Duration::from_secs(8);
/// All trials together; what was found until then is kept.
const ALL_TAKE: Duration = Duration::from_secs(60);
/// Another plan must be so much faster than the best one until then: less is chance.
const GAIN: f64 = 0.97;
/// Chunks of prompts, and caches, that are tried beside the planned ones.
const BATCHES: [u32; 3] = [64, 128, 512];
const KV_TYPES: [&str; 2] = ["f16", "q8_0"];
/// A copy may take so much of what is left: more would press on other programs.
const COPY_SHARE: f64 = 0.75;

/// Tries plans; one model at a time.
#[derive(Default)]
pub struct Tuner {
    running: Mutex<()>,
    is_stopped: AtomicBool,
}

/// What a tuner works with.
#[derive(Clone)]
pub struct Bench {
    /// Loads and runs.
    pub runtime: Arc<Runtime>,
    /// Keeps what was found.
    pub store: Arc<Store>,
    /// Knows the machine.
    pub prober: Arc<Prober>,
}

impl Tuner {
    /// Stops after the trial that is being made; nothing is kept.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Tries plans for a model and keeps the fastest, with which it is loaded in the end. Blocks for half a minute or so.
    ///
    /// on       hears of every trial; `Break` stops
    pub fn tune(
        &self,
        bench: &Bench,
        request: &LoadRequest,
        on: &mut dyn FnMut(TuneEvent) -> Flow,
    ) -> Result<Tuning, Failure> {
        let _running = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy()),
        };
        self.is_stopped.store(false, Ordering::Relaxed);
        let search =
            Search { bench, request, started: Instant::now(), is_stopped: &self.is_stopped, on, trials: Vec::new() };
        search.run()
    }
}

/// The tuning that holds for a request here, if there is one.
pub fn tuning(store: &Store, hardware: &Hardware, request: &LoadRequest) -> Option<Tuning> {
    let context_length = request.wishes.context_length.unwrap_or(0);
    let kept = store.tuning(&request.model_id, &machine_name(hardware), context_length);
    kept.inspect_err(|error| tracing::warn!(%error, "a tuning cannot be read")).ok().flatten()
}

/// Wishes beside what was fastest; nothing wished is touched.
pub fn tuned(wishes: &Wishes, tuning: &Tuning) -> Wishes {
    let Tuning { n_threads, n_batch, kv_type, file_use, .. } = tuning;
    let tuned = Tuned { n_threads: *n_threads, n_batch: *n_batch, kv_type: kv_type.clone(), file_use: *file_use };
    Wishes { tuned: Some(tuned), ..wishes.clone() }
}

struct Search<'a> {
    bench: &'a Bench,
    request: &'a LoadRequest,
    started: Instant,
    is_stopped: &'a AtomicBool,
    on: &'a mut dyn FnMut(TuneEvent) -> Flow,
    trials: Vec<Trial>,
}

impl Search<'_> {
    fn run(mut self) -> Result<Tuning, Failure> {
        let hardware = self.bench.prober.hardware(std::path::Path::new("."));
        let mut best = self.trial(&self.request.wishes.clone())?;
        let first = best.clone();
        for n_threads in thread_counts(&first, &hardware) {
            best = self.better(best, |wishes| wishes.n_threads = Some(n_threads))?;
        }
        for n_batch in BATCHES.into_iter().filter(|n| *n != first.n_batch) {
            best = self.better(best, |wishes| wishes.n_batch = Some(n_batch))?;
        }
        for kv_type in KV_TYPES.into_iter().filter(|kv_type| *kv_type != first.kv_type) {
            best = self.better(best, |wishes| wishes.kv_type = Some(kv_type.to_owned()))?;
        }
        let plan = self.bench.runtime.loaded().map(|loaded| loaded.plan.clone());
        let not_tried: Vec<Text> =
            [plan.as_ref().and_then(no_copy), plan.as_ref().and_then(no_expert_layers)].into_iter().flatten().collect();
        if plan.is_some_and(|plan| no_copy(&plan).is_none()) && first.file_use == FileUse::ReadAhead {
            best = self.better(best, |wishes| wishes.file_use = Some(FileUse::Copied))?;
        }
        let tuning = Tuning {
            model_id: self.request.model_id.clone(),
            machine: machine_name(&hardware),
            context_length: self.request.wishes.context_length.unwrap_or(0),
            at_ms: now_ms(),
            took_ms: self.started.elapsed().as_secs_f64() * 1e3,
            n_threads: best.n_threads,
            n_batch: best.n_batch,
            kv_type: best.kv_type.clone(),
            file_use: best.file_use,
            tokens_per_s: best.tokens_per_s,
            not_tried,
            trials: std::mem::take(&mut self.trials),
        };
        self.bench.store.set_tuning(&tuning)?;
        self.load(&tuned(&self.request.wishes, &tuning))?;
        Ok(tuning)
    }

    /// Tries the best plan with one change; keeps the better of the two. What cannot be loaded is no better.
    fn better(&mut self, best: Trial, change: impl FnOnce(&mut Wishes)) -> Result<Trial, Failure> {
        if self.started.elapsed() > ALL_TAKE {
            return Ok(best);
        }
        let wished = &self.request.wishes;
        let mut wishes = Wishes {
            n_threads: Some(best.n_threads),
            n_batch: Some(best.n_batch),
            kv_type: Some(best.kv_type.clone()),
            file_use: Some(best.file_use),
            ..wished.clone()
        };
        change(&mut wishes);
        // What a person has fixed is not tried.
        let is_fixed = (wished.n_threads.is_some() && wishes.n_threads != wished.n_threads)
            || (wished.n_batch.is_some() && wishes.n_batch != wished.n_batch)
            || (wished.kv_type.is_some() && wishes.kv_type != wished.kv_type)
            || (wished.file_use.is_some() && wishes.file_use != wished.file_use);
        if is_fixed {
            return Ok(best);
        }
        match self.trial(&wishes) {
            Ok(trial) if trial.is_safe && turn_s(&trial) < turn_s(&best) * GAIN => Ok(trial),
            Ok(_) => Ok(best),
            Err(failure) if failure.code == ErrorCode::Cancelled => Err(failure),
            Err(failure) => {
                tracing::info!(message = failure.message.en, "a plan cannot be tried");
                Ok(best)
            }
        }
    }

    fn trial(&mut self, wishes: &Wishes) -> Result<Trial, Failure> {
        self.check()?;
        let is_safe = self.load(wishes)?;
        let stats = self.generate()?;
        let loaded = self.bench.runtime.loaded().ok_or_else(cancelled)?;
        let trial = Trial {
            n_threads: loaded.plan.n_threads,
            n_batch: loaded.plan.n_batch,
            kv_type: loaded.plan.kv_type.clone(),
            file_use: loaded.plan.file_use,
            prompt_tokens_per_s: stats.prompt_tokens_per_s(),
            tokens_per_s: stats.generation_tokens_per_s(),
            is_safe,
        };
        self.trials.push(trial.clone());
        let progress = (self.started.elapsed().as_secs_f64() / ALL_TAKE.as_secs_f64()).min(1.0);
        self.tell(TuneEvent::Tried { trial, progress })?;
        Ok(trial_of(&self.trials))
    }

    /// Loads; says whether nothing had to be given up and room is left.
    fn load(&mut self, wishes: &Wishes) -> Result<bool, Failure> {
        let request = LoadRequest { model_id: self.request.model_id.clone(), wishes: wishes.clone() };
        let (is_stopped, mut last) = (self.is_stopped, None);
        self.bench.runtime.load(&request, &mut |event| {
            last = Some(event);
            if is_stopped.load(Ordering::Relaxed) { Flow::Break } else { Flow::Continue }
        });
        match last {
            Some(LoadEvent::Ready { plan, given_up, .. }) => Ok(given_up.is_none() && plan.verdict != Verdict::Tight),
            Some(LoadEvent::Failed { failure }) => Err(failure),
            _ => Err(cancelled()),
        }
    }

    /// Reads a prompt and writes an answer; which tokens does not matter to the time.
    fn generate(&self) -> Result<GenerateStats, Failure> {
        let engine = self.bench.runtime.begin()?;
        let started = Instant::now();
        let request = GenerateRequest {
            tokens: (0..N_PROMPT as u32).map(|i| 1 + i * 31 % 200).collect(),
            sampler: SamplerSettings { temperature: 0.0, ..SamplerSettings::default() },
            max_new_tokens: Some(N_GENERATED),
            at_end: AtEnd::GoOn,
        };
        let (_, stats) = engine
            .generate(request, &mut |_| {
                let is_over = started.elapsed() > TRIAL_TAKES || self.is_stopped.load(Ordering::Relaxed);
                if is_over { Flow::Break } else { Flow::Continue }
            })
            .map_err(|error| error.explain())?;
        self.check()?;
        Ok(stats)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(cancelled()) } else { Ok(()) }
    }

    fn tell(&mut self, event: TuneEvent) -> Result<(), Failure> {
        match (self.on)(event) {
            Flow::Continue => Ok(()),
            Flow::Break => Err(cancelled()),
        }
    }
}

/// Why the file is not copied for a trial, if it is not.
fn no_copy(plan: &Plan) -> Option<Text> {
    let bytes = |parts: &[crate::wire::BarPart]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    let bar = &plan.ram_bar;
    let free = bar.capacity_bytes.saturating_sub(bar.others_bytes);
    (bytes(&bar.parts) as f64 > free as f64 * COPY_SHARE).then(|| {
        Text::new(
            "A copy of the file in memory was not tried: too little would be left.",
            "未试运行“文件复制到内存”：剩余内存会太少。",
        )
    })
}

/// Why experts were not moved between card and memory, if the model has any.
fn no_expert_layers(plan: &Plan) -> Option<Text> {
    let has_experts = plan.layers.iter().any(|layer| layer.experts.is_some());
    (has_experts && plan.cpu_computes.is_some()).then(|| {
        Text::new(
            "Layers of experts on the card were not tried: the processor computes alone.",
            "未试运行“专家层放在显卡”：仅由处理器计算。",
        )
    })
}

fn trial_of(trials: &[Trial]) -> Trial {
    trials.last().cloned().unwrap_or_default()
}

/// Seconds of a typical turn; endless if something could not be measured.
fn turn_s(trial: &Trial) -> f64 {
    let seconds = |n: f64, rate: f64| if rate > 0.0 { n / rate } else { f64::INFINITY };
    seconds(TURN_PROMPT, trial.prompt_tokens_per_s) + seconds(TURN_GENERATED, trial.tokens_per_s)
}

/// Neighbours of the planned number: one less, all cores, all that this process may use.
fn thread_counts(planned: &Trial, hardware: &Hardware) -> Vec<u32> {
    let cpu = &hardware.cpu;
    let mut counts = vec![planned.n_threads.saturating_sub(1), cpu.n_physical_cores, cpu.n_allowed_cores];
    counts.retain(|n| *n > 0 && *n <= cpu.n_allowed_cores && *n != planned.n_threads);
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn busy() -> Failure {
    Failure::new(
        ErrorCode::Busy,
        Text::new("plans are being tried already", "正在试运行各方案"),
        Text::new("wait for the end, or stop it", "等待其结束，或将其停止"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::hardware::ProbeOptions;

    #[test]
    fn neighbours_of_the_planned_threads_are_tried() {
        let mut hardware = Prober::new(ProbeOptions::default()).hardware(Path::new("."));
        let mut counts = |planned, physical, allowed| {
            (hardware.cpu.n_physical_cores, hardware.cpu.n_allowed_cores) = (physical, allowed);
            thread_counts(&Trial { n_threads: planned, ..Trial::default() }, &hardware)
        };
        assert!(counts(1, 1, 1).is_empty());
        assert_eq!(counts(2, 2, 2), [1]);
        assert_eq!(counts(6, 6, 12), [5, 12]);
        assert_eq!(counts(6, 14, 20), [5, 14, 20]);
        assert_eq!(counts(4, 8, 4), [3]);
    }

    #[test]
    fn what_was_fastest_is_no_wish() {
        let tuning = Tuning { n_threads: 4, n_batch: 128, kv_type: "q8_0".into(), ..Tuning::default() };
        let wishes = Wishes { n_threads: Some(2), context_length: Some(4096), ..Wishes::default() };
        let found = tuned(&wishes, &tuning);
        let expected = Tuned { n_threads: 4, n_batch: 128, kv_type: "q8_0".into(), file_use: FileUse::ReadAhead };
        assert_eq!(found, Wishes { tuned: Some(expected), ..wishes });
    }

    #[test]
    fn what_is_not_tried_is_said() {
        let roomy = crate::plan::example();
        assert_eq!((no_copy(&roomy), no_expert_layers(&roomy)), (None, None));
        let mut tight = roomy.clone();
        tight.ram_bar.others_bytes = tight.ram_bar.capacity_bytes - tight.ram_bar.parts[0].bytes;
        assert!(no_copy(&tight).is_some_and(|text| !text.zh.is_empty()));
        let with_experts = crate::plan::with_card()(&Wishes::default());
        assert_eq!(no_expert_layers(&with_experts), None, "the card computes");
        let not_yet = Plan { cpu_computes: Some(Text::default()), ..with_experts };
        assert!(no_expert_layers(&not_yet).is_some_and(|text| !text.zh.is_empty()));
    }

    #[test]
    fn what_could_not_be_measured_never_wins() {
        let trial = |prompt, tokens| Trial { prompt_tokens_per_s: prompt, tokens_per_s: tokens, ..Trial::default() };
        assert!(turn_s(&trial(100.0, 10.0)) < turn_s(&trial(100.0, 0.0)));
        assert!(turn_s(&trial(100.0, 10.0)) < turn_s(&trial(50.0, 10.0)));
    }
}
