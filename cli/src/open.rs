//! What commands open: logs, the machine, a plan.
use std::path::Path;

use tandem_core::hardware::{ProbeOptions, Prober};
use tandem_core::log::{self, LogGuard};
use tandem_core::paths::Paths;
use tandem_core::plan;
use tandem_core::wire::{Hardware, Plan, Wishes};
use tandem_engine::gguf::ModelFacts;
use tandem_engine::model::LoadOptions;
use tracing::level_filters::LevelFilter;

use crate::args::{self, Args};
use crate::exit::refused;

/// Starts logging, if there is a place for logs.
pub(crate) fn logs(args: &Args) -> Option<LogGuard> {
    let console = match args.verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    Some(log::start(&paths(args)?.logs_dir, console))
}

fn paths(args: &Args) -> Option<Paths> {
    args.data_dir.as_deref().map_or_else(Paths::standard, |dir| Some(Paths::under(dir)))
}

/// This machine, with the volume of `folder`.
pub(crate) fn hardware(args: &Args, folder: &Path) -> Hardware {
    Prober::new(ProbeOptions { nvml_path: args.nvml.clone() }).hardware(folder)
}

/// One per performance core that this process may use.
pub(crate) fn n_threads() -> usize {
    tandem_engine::cpu::Topology::probe().default_threads()
}

/// How a file would run here.
pub(crate) fn plan(facts: &ModelFacts, folder: &Path, wishes: args::Wishes, args: &Args) -> anyhow::Result<Plan> {
    plan::plan(facts, &hardware(args, folder), &wishes.into()).map_err(refused)
}

/// The same in the engine's terms, if it can run at all.
pub(crate) fn planned(facts: &ModelFacts, wishes: args::Wishes, args: &Args) -> anyhow::Result<LoadOptions> {
    let plan = plan(facts, Path::new("."), wishes, args)?;
    plan::check_loadable(&plan).and_then(|()| plan::load_options(&plan)).map_err(refused)
}

impl From<args::Wishes> for Wishes {
    fn from(wishes: args::Wishes) -> Self {
        let args::Wishes { context_length, n_gpu_layers, n_threads } = wishes;
        Self { context_length, n_gpu_layers, n_threads }
    }
}
