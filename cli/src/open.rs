//! What commands open: logs, the app, a model by any of its names.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::calibrate;
use tandem_core::hardware::{ProbeOptions, Prober};
use tandem_core::library::Environment;
use tandem_core::log::{self, LogGuard};
use tandem_core::paths::Paths;
use tandem_core::plan;
use tandem_core::store::Store;
use tandem_core::token::GivenToken;
use tandem_core::wire::{Aim, ErrorCode, Failure, Hardware, LibraryModel, Plan, Text, Wishes};
use tandem_engine::gguf::ModelFacts;
use tandem_engine::model::LoadOptions;
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;

use crate::args::{self, Args};
use crate::exit::refused;
use crate::terminal::Terminal;

/// The app and the runtime its network runs on; dropped together, the app first.
pub(crate) struct Opened {
    pub(crate) app: Arc<App>,
    pub(crate) tokio: Runtime,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.app.shutdown();
    }
}

impl Opened {
    /// Waits for a command of the app.
    pub(crate) fn wait<T>(&self, command: impl Future<Output = Result<T, Failure>>) -> anyhow::Result<T> {
        self.tokio.block_on(command).map_err(refused)
    }

    /// The model of the library that is meant: by identifier, file, name, repo, or one of the last two with `:quant`.
    /// A file that is not in the library yet is taken in where it lies.
    pub(crate) fn model(&self, wanted: &str) -> anyhow::Result<LibraryModel> {
        if Path::new(wanted).is_file() {
            return self.wait(api::add_model(&self.app, wanted.to_owned()));
        }
        let kept = self.wait(api::library(&self.app))?;
        // Other programs may have fetched it since anybody looked.
        let models = if find(&kept, wanted).is_ok() { kept } else { self.wait(api::rescan_library(&self.app))? };
        find(&models, wanted).map_err(refused).cloned()
    }
}

/// Opens the app. Only one process at a time may.
pub(crate) fn app(args: &Args) -> anyhow::Result<Opened> {
    let tokio = Runtime::new().context("cannot start threads for the network")?;
    let options = AppOptions {
        paths: args.data_dir.as_deref().map(Paths::under),
        forced_hub_url: args.hub_url.clone(),
        hub_url: std::env::var("HF_ENDPOINT").ok().filter(|url| !url.is_empty()),
        given_token: GivenToken::find(|name| std::env::var_os(name), std::env::home_dir().as_deref()),
        nvml_path: args.nvml.clone(),
        environment: Environment::of_process(),
        ..AppOptions::default()
    };
    let app = {
        let _entered = tokio.enter();
        App::open(options).map_err(refused)?
    };
    let terminal = Terminal::new(args.lang, args.json);
    app.notices().iter().for_each(|notice| terminal.notice(notice));
    Ok(Opened { app, tokio })
}

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
    let mut hardware = Prober::new(ProbeOptions { nvml_path: args.nvml.clone() }).hardware(folder);
    // Read beside an app that may have it open; what cannot be read is not known.
    let store = paths(args).and_then(|paths| Store::read_only(&paths.database).ok());
    let measured = store.and_then(|store| calibrate::measured(&store, &calibrate::machine_name(&hardware)).ok());
    hardware.measured = measured.unwrap_or_default();
    hardware
}

/// One per performance core that this process may use.
pub(crate) fn n_threads() -> usize {
    tandem_engine::cpu::Topology::probe().default_threads()
}

/// The header of a file that the engine computes, with or without a tokenizer.
pub(crate) fn computable(path: &Path) -> anyhow::Result<ModelFacts> {
    let facts = ModelFacts::from_file(path).map_err(refused)?;
    facts.refusal_to_compute().map_err(refused)?;
    Ok(facts)
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

/// The file of a model: named itself, or found in the library.
pub(crate) fn model_path(wanted: &str, args: &Args) -> anyhow::Result<PathBuf> {
    if Path::new(wanted).is_file() {
        return Ok(PathBuf::from(wanted));
    }
    Ok(PathBuf::from(app(args)?.model(wanted)?.path))
}

/// A model of the library by any of its names; exactly one must be meant.
fn find<'a>(models: &'a [LibraryModel], wanted: &str) -> Result<&'a LibraryModel, Failure> {
    let is_same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let (name, quant) = wanted.rsplit_once(':').map_or((wanted, None), |(name, quant)| (name, Some(quant)));
    let is_meant = |model: &&LibraryModel| {
        let repo = model.source.as_ref().map_or("", |source| &source.repo);
        let short = repo.rsplit('/').next().unwrap_or_default();
        let own = [model.name.as_str(), repo, short];
        let titles = model.places.iter().filter_map(|place| place.title.as_deref());
        let names: Vec<&str> = own.into_iter().chain(titles).filter(|own| !own.is_empty()).collect();
        let is_named = |name: &str| names.iter().any(|own| is_same(own, name));
        model.id == wanted
            || model.path == wanted
            || is_named(wanted)
            || is_named(name) && quant.is_some_and(|quant| is_same(quant, &model.quant))
    };
    let meant: Vec<&LibraryModel> = models.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [model] => Ok(model),
        [] => Err(Failure::new(
            ErrorCode::ModelMissing,
            Text::new(
                format!("`{wanted}` is neither a file nor in the library"),
                format!("`{wanted}` 既不是文件，也不在模型库中"),
            ),
            Text::new(
                "see `tandem list`, or fetch it with `tandem pull`",
                "用 `tandem list` 查看，或用 `tandem pull` 下载",
            ),
        )),
        several => {
            let names: Vec<String> = several.iter().map(|model| format!("{}:{}", model.name, model.quant)).collect();
            let names = names.join(", ");
            Err(Failure::new(
                ErrorCode::BadRequest,
                Text::new(format!("`{wanted}` could be {names}"), format!("`{wanted}` 可能是 {names}")),
                Text::new("name one of them, or its path", "写出其中一个，或它的路径"),
            ))
        }
    }
}

impl From<args::Wishes> for Wishes {
    fn from(wishes: args::Wishes) -> Self {
        let args::Wishes { context_length, n_gpu_layers, n_expert_layers, n_threads, kv_types, aim } = wishes;
        let kv_type = kv_types.map(|types| types.to_string());
        let aim = aim.into();
        Self { context_length, n_gpu_layers, n_expert_layers, n_threads, kv_type, aim, ..Self::default() }
    }
}

impl From<args::Aim> for Aim {
    fn from(aim: args::Aim) -> Self {
        match aim {
            args::Aim::Balanced => Self::Balanced,
            args::Aim::Context => Self::LongerContext,
            args::Aim::Quality => Self::BetterQuality,
            args::Aim::Speed => Self::Faster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::wire::{HashWord, Integrity, RepoFile};

    fn model(id: &str, name: &str, quant: &str, repo: Option<&str>) -> LibraryModel {
        LibraryModel {
            id: id.into(),
            name: name.into(),
            quant: quant.into(),
            architecture: "llama".into(),
            path: format!("/models/{id}.gguf"),
            size_bytes: 1,
            n_params: 1,
            context_length: 1,
            integrity: Integrity::Unverified,
            source: repo.map(|repo| RepoFile {
                repo: repo.into(),
                commit: "c".into(),
                path: "p".into(),
                size_bytes: 1,
                sha256: None,
                hash_word: HashWord::Unknown,
            }),
            refusal: None,
            added_at_ms: 0,
            files: Vec::new(),
            places: Vec::new(),
            newer: None,
            elsewhere: Vec::new(),
        }
    }

    #[test]
    fn models_are_found_by_any_name_but_only_one() {
        let models = [
            model("1", "Small", "Q4_1", Some("people/Small-GGUF")),
            model("2", "Small", "Q8_0", None),
            model("3", "模型", "Q4_K_M", None),
        ];
        for (wanted, expected) in [
            ("1", Ok("1")),
            ("/models/2.gguf", Ok("2")),
            ("模型", Ok("3")),
            ("small:q8_0", Ok("2")),
            ("people/small-gguf", Ok("1")),
            ("Small-GGUF:Q4_1", Ok("1")),
            ("Small", Err(ErrorCode::BadRequest)),
            ("Small:Q2_K", Err(ErrorCode::ModelMissing)),
            ("", Err(ErrorCode::ModelMissing)),
        ] {
            let found = find(&models, wanted).map(|model| model.id.as_str()).map_err(|failure| failure.code);
            assert_eq!(found, expected, "{wanted}");
        }
    }
}
