//! `cargo xtask run`: builds Tandem and opens its window, or, without a display, proves that it works.
//!
//! Data lies below `target`, apart from an installed Tandem's: both can run at once, and `cargo clean` removes it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, command, succeed};
use crate::models::{GEMMA, PackagedModel, STARTER};
use crate::packages::Purpose;
use crate::setup;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Flags of `cargo xtask run`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Serve two models on loopback and point the app there.
    pub(crate) hub: bool,
    /// No window to look at, even where there is a display.
    pub(crate) headless: bool,
}

/// What the headless run asks.
const QUESTION: &str = "What is the capital of France? Answer in one sentence.";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let headless = options.headless || !has_display();
    if headless && !cfg!(target_os = "linux") {
        bail!("only on Linux can the window be driven without a display");
    }
    let purposes: &[Purpose] = if headless { &[Purpose::Build, Purpose::Screen] } else { &[Purpose::Build] };
    let mut steps = Steps::default();
    let venv = setup::prepare(workspace, &mut steps, purposes)?;
    steps.need("build of the app", || build(workspace, options.hub || headless))?;

    let data_dir = workspace.root.join(if options.hub { "target/data-hub" } else { "target/data" });
    let mut app_args = vec!["--data-dir".into(), data_dir.clone().into_os_string()];
    let mut hub = None;
    if options.hub {
        let gemma = steps.need("second model of the hub", || GEMMA.provide(workspace, &venv))?;
        let running = steps.need("hub on loopback", || Hub::start(workspace, &gemma))?;
        app_args.extend(["--hub-url".into(), running.url.clone().into()]);
        hub = Some(running);
    } else {
        // With the hub, finding and downloading it is the point.
        steps.need("starter model in the library", || keep(workspace, &STARTER, &data_dir))?;
    }

    let mut job = if headless {
        let mut job = command(workspace.program("tandem-first-chat"));
        job.arg("--screenshot").arg(workspace.artefacts().join("run.png")).args(["--question", QUESTION]);
        job.args(["--repo", STARTER.repo, "--"]).arg(workspace.program("tandem-desktop"));
        job
    } else {
        eprintln!("\n  ==  Tandem is open; this ends when its window is closed");
        command(workspace.program("tandem-desktop"))
    };
    let status = job.args(&app_args).status().with_context(|| format!("cannot start {:?}", job.get_program()))?;
    drop(hub);
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_display() -> bool {
    let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

fn build(workspace: &Workspace, with_test_programs: bool) -> Result<()> {
    let mut build = cargo(&workspace.root);
    build.args(["build", "--locked", "--package", "tandem-desktop"]);
    if with_test_programs {
        build.args(["--package", "tandem-tests", "--bins"]);
    }
    succeed(&mut build)
}

/// Puts a model where a download would have put it.
fn keep(workspace: &Workspace, model: &PackagedModel, data_dir: &Path) -> Result<()> {
    let to = data_dir.join("models").join(model.repo).join(model.file);
    if to.is_file() {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    let from = fs::canonicalize(workspace.models().join(model.file))?;
    // A second name for the same bytes where the volume allows it.
    if fs::hard_link(&from, &to).is_err() {
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// The test hub, for as long as this lives.
struct Hub {
    process: Child,
    url: String,
}

impl Hub {
    fn start(workspace: &Workspace, gemma: &Path) -> Result<Self> {
        let starter = workspace.models().join(STARTER.file);
        let mut hub = Command::new(workspace.program("tandem-test-hub"));
        for (model, path) in [(&STARTER, starter), (&GEMMA, PathBuf::from(gemma))] {
            hub.arg("--repo").arg(format!("{}={}", model.repo, path.display()));
        }
        hub.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = hub.spawn().context("cannot start the test hub")?;
        let mut url = String::new();
        let pipe = process.stdout.take().context("the hub has a pipe")?;
        BufReader::new(pipe).read_line(&mut url)?;
        let url = url.trim().to_owned();
        if url.is_empty() {
            bail!("the test hub ended without an address");
        }
        eprintln!("     {url}");
        Ok(Self { process, url })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}
