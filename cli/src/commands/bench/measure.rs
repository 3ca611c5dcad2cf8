//! The measuring itself: loads, runs, and looks at memory between them.
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::plan::TokenReads;
use tandem_core::wire::Text;
use tandem_engine::Flow;
use tandem_engine::cpu::Isa;
use tandem_engine::error::EngineError;
use tandem_engine::gguf::ModelFacts;
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{LoadOptions, Model};
use tandem_engine::place::{Device, Placement};
use tandem_engine::profile::ProfileRow;
use tandem_engine::session::Session;

use super::report::{Kernels, Memory, Rate, Reads, Report, Test, median, operations};
use crate::args::{self, Args};
use crate::exit::{bad_request, refused};
use crate::open;
use crate::terminal::{Bar, Terminal};

/// Read between two runs to see what the memory gives: about 30 ms.
const READ_BYTES: u64 = 512 << 20;
/// Tokens that warm caches and clocks up before anything counts.
const N_WARM_UP: usize = 64;

pub(super) fn measure(args: &args::Bench, path: &Path, global: &Args, terminal: &Terminal) -> anyhow::Result<Report> {
    let facts = open::computable(path)?;
    let cases = Case::all(args)?;
    let options = options(args, &cases, &facts, global)?;
    let bar = terminal.bar(cases.len() as u64 * (u64::from(args.reps) + 1), Bar::Share);
    bar.set_message(args.model.clone());

    let (model, load_ms) = load(path, &options)?;
    drop(model);
    let (session, warm_load_ms) = load(path, &options)?;
    let mut bench = Bench { session, looks: Looks::default(), read_rates: Vec::new() };
    bench.warm_up().map_err(refused)?;
    // One model at a time: its pages would count twice.
    if args.profile {
        drop(bench.session);
        let model = load_model(path, &options)?.profiled();
        bench.session = Session::new(Arc::new(model)).map_err(refused)?;
    }
    let mut runs: Vec<Runs> = cases.iter().map(|_| Runs::default()).collect();
    // Depth by depth, so that each is filled once; in turn within a depth, so that a disturbance meets all.
    let mut first = 0;
    for group in cases.chunk_by(|a, b| a.n_depth == b.n_depth) {
        for _ in 0..args.reps {
            for (case, runs) in group.iter().zip(&mut runs[first..]) {
                bench.run(case, runs).map_err(refused)?;
                bar.inc(1);
            }
        }
        first += group.len();
    }
    bar.finish_and_clear();

    let read = Rate::of(bench.read_rates);
    let tests = cases.iter().zip(runs).map(|(case, runs)| case.test(runs, &facts, options.kv_types, &read));
    let tests = tests.collect::<anyhow::Result<_>>()?;
    let footprint = bench.session.model().footprint();
    let isa = options.isa.unwrap_or_else(Isa::best);
    let (n_threads, n_batch) = (options.n_threads, bench.session.model().options().n_batch);
    Ok(Report {
        model: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        architecture: facts.architecture().unwrap_or_default().to_owned(),
        quant: facts.quant_label(),
        size_bytes: facts.file_bytes,
        n_params: facts.n_params(),
        isa: isa.to_string(),
        n_threads,
        n_batch,
        cache_type_k: options.kv_types.k.to_string(),
        cache_type_v: options.kv_types.v.to_string(),
        load_ms,
        warm_load_ms,
        read,
        tests,
        memory: Memory {
            peak: peak_bytes(),
            file: facts.file_bytes,
            kv: footprint.kv_bytes.iter().sum(),
            checkpoints: footprint.checkpoint_bytes,
            buffers: footprint.buffer_bytes,
        },
        kernels: Kernels::of(&facts, isa, n_batch),
        cancel_ms: bench.looks.longest.as_secs_f64() * 1e3,
    })
}

/// As the plan would load it, with just the context that is needed.
fn options(args: &args::Bench, cases: &[Case], facts: &ModelFacts, global: &Args) -> anyhow::Result<LoadOptions> {
    let n_tokens = cases.iter().map(|case| case.n_depth + case.n_tokens + 1).max().unwrap_or(1).max(N_WARM_UP);
    let wishes = args::Wishes {
        context_length: Some(n_tokens as u32),
        // A placement that was not asked for is none.
        n_gpu_layers: (args.gpu_layers == 0).then_some(0),
        n_expert_layers: None,
        n_threads: args.threads,
        kv_types: None,
        aim: args::Aim::Balanced,
    };
    let options = open::planned(facts, wishes, global)?;
    let KvTypes { k, v } = options.kv_types;
    let kv_types = KvTypes { k: args.cache_type_k.unwrap_or(k), v: args.cache_type_v.unwrap_or(v) };
    let n_batch = args.batch.map_or(options.n_batch, usize::from);
    let routed = if args.cpu_moe { Device::Cpu } else { Device::Cuda(0) };
    let n_layers = options.placement.layers.len();
    let placement = Placement::last_layers_on(Device::Cuda(0), n_layers, args.gpu_layers, routed);
    Ok(LoadOptions { placement, isa: args.isa, context_length: n_tokens, kv_types, n_batch, ..options })
}

fn load_model(path: &Path, options: &LoadOptions) -> anyhow::Result<Model> {
    Model::load(path, options, &mut |_| Flow::Continue).map_err(refused)
}

/// A session that can be given tokens, and how long that took in milliseconds.
fn load(path: &Path, options: &LoadOptions) -> anyhow::Result<(Session, f64)> {
    let started = Instant::now();
    let session = Session::new(Arc::new(load_model(path, options)?)).map_err(refused)?;
    Ok((session, started.elapsed().as_secs_f64() * 1e3))
}

/// One kind of run.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    n_tokens: usize,
    /// Tokens that are there already.
    n_depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Prompt,
    Generation,
}

impl Case {
    /// All that were asked for.
    fn all(args: &args::Bench) -> anyhow::Result<Vec<Self>> {
        let kinds = [(Kind::Prompt, args.prompt), (Kind::Generation, args.generate)];
        let cases: Vec<Self> = args
            .depth
            .iter()
            .flat_map(|&n_depth| kinds.map(|(kind, n_tokens)| Self { kind, n_tokens, n_depth }))
            .filter(|case| case.n_tokens > 0)
            .collect();
        if !cases.is_empty() {
            return Ok(cases);
        }
        Err(bad_request(
            Text::new("there is nothing to measure", "没有要测的内容"),
            Text::new("give `--prompt` or `--generate` a number above 0", "让 `--prompt` 或 `--generate` 大于 0"),
        ))
    }

    /// As llama-bench writes it.
    fn name(&self) -> String {
        let Self { kind, n_tokens, n_depth } = self;
        let kind = match kind {
            Kind::Prompt => "pp",
            Kind::Generation => "tg",
        };
        if *n_depth == 0 { format!("{kind}{n_tokens}") } else { format!("{kind}{n_tokens} @ d{n_depth}") }
    }

    fn test(&self, runs: Runs, facts: &ModelFacts, kv_types: KvTypes, limit: &Rate) -> anyhow::Result<Test> {
        let rate = |time: &Duration| self.n_tokens as f64 / time.as_secs_f64().max(1e-9);
        let samples: Vec<f64> = runs.times.iter().map(rate).collect();
        let tokens_per_s = median(&samples);
        let is_prompt = self.kind == Kind::Prompt;
        let reads = if is_prompt {
            None
        } else {
            let reads = TokenReads::of(facts, self.n_depth + self.n_tokens / 2, kv_types).map_err(refused)?;
            Some(Reads::of(reads, tokens_per_s, limit.bytes_per_s))
        };
        let profile = match runs.times.last() {
            Some(&time) if !runs.profile.is_empty() => operations(runs.profile, time),
            _ => Vec::new(),
        };
        Ok(Test {
            name: self.name(),
            n_prompt: if is_prompt { self.n_tokens } else { 0 },
            n_generate: if is_prompt { 0 } else { self.n_tokens },
            n_depth: self.n_depth,
            tokens_per_s,
            samples_tokens_per_s: samples,
            reads,
            profile,
        })
    }
}

/// What the runs of a case took.
#[derive(Debug, Default)]
struct Runs {
    times: Vec<Duration>,
    /// Of the last one.
    profile: Vec<ProfileRow>,
}

/// What is measured, and what is seen meanwhile.
struct Bench {
    session: Session,
    looks: Looks,
    read_rates: Vec<f64>,
}

impl Bench {
    fn warm_up(&mut self) -> Result<(), EngineError> {
        let tokens = self.some_tokens(N_WARM_UP);
        self.looks.feed(&mut self.session, &tokens[..N_WARM_UP - 1])?;
        self.looks.feed(&mut self.session, &tokens)?;
        self.looks = Looks::default();
        Ok(())
    }

    /// One run, and a look at what the memory gives at the time.
    fn run(&mut self, case: &Case, runs: &mut Runs) -> Result<(), EngineError> {
        let Case { kind, n_tokens, n_depth } = *case;
        // Generation follows a token at least, as llama-bench's follows the one that begins a text.
        let n_before = n_depth.max(usize::from(kind == Kind::Generation));
        let tokens = self.some_tokens(n_before + n_tokens);
        self.hold(&tokens[..n_before])?;
        self.session.model().take_profile();
        let started = Instant::now();
        match kind {
            Kind::Prompt => self.looks.feed(&mut self.session, &tokens)?,
            Kind::Generation => {
                for n in n_before + 1..=tokens.len() {
                    self.looks.feed(&mut self.session, &tokens[..n])?;
                }
            }
        }
        runs.times.push(started.elapsed());
        runs.profile = self.session.model().take_profile();
        self.read_rates.push(self.session.model().read_rate(READ_BYTES));
        Ok(())
    }

    /// Makes the session hold these tokens and no others; what it has of them already is not computed again.
    fn hold(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        if tokens.is_empty() {
            self.session.clear();
            return Ok(());
        }
        self.looks.feed(&mut self.session, tokens)
    }

    /// The same every time, spread over the vocabulary; which ones does not matter to the time.
    fn some_tokens(&self, n: usize) -> Vec<u32> {
        some_tokens(n, self.session.model().n_vocab())
    }
}

fn some_tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    let mut state = 1_u32;
    let mut next = || {
        // Source: Numerical Recipes, "quick and dirty" linear congruential generator.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % (n_vocab.max(1) as u32)
    };
    (0..n).map(|_| next()).collect()
}

/// Times between looks at the stop button.
#[derive(Debug, Default)]
struct Looks {
    longest: Duration,
}

impl Looks {
    fn feed(&mut self, session: &mut Session, tokens: &[u32]) -> Result<(), EngineError> {
        let mut last = Instant::now();
        let mut look = || {
            self.longest = self.longest.max(last.elapsed());
            last = Instant::now();
        };
        session.feed(tokens, &mut |_| {
            look();
            Flow::Continue
        })?;
        look();
        Ok(())
    }
}

/// The most main memory that this process ever held, as Linux says it.
fn peak_bytes() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_lie_in_the_vocabulary_and_are_the_same_every_time() {
        let tokens = some_tokens(1000, 77);
        assert!(tokens.iter().all(|token| *token < 77));
        assert_eq!(tokens, some_tokens(1000, 77));
        assert_eq!(tokens[..10], some_tokens(10, 77));
    }

    #[test]
    fn runs_are_named_as_llama_bench_names_them() {
        let name = |kind, n_depth| Case { kind, n_tokens: 64, n_depth }.name();
        assert_eq!(name(Kind::Prompt, 0), "pp64");
        assert_eq!(name(Kind::Generation, 8192), "tg64 @ d8192");
    }

    #[test]
    fn the_peak_is_read_from_what_linux_says() {
        assert_eq!(peak_of("Name:\ttandem\nVmHWM:\t  123456 kB\nVmRSS:\t 99 kB\n"), Some(123_456 * 1024));
        assert_eq!(peak_of("VmHWM:\tmuch\n"), None);
        assert_eq!(peak_of(""), None);
    }
}
