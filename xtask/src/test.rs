//! `cargo xtask test`: everything that is checked before a change lands.
//!
//! Checks that stand for themselves all run, whatever another found. Workspace-wide commands only: a package apart would be
//! built with other features, and much of what it needs with it, a second time.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::command::{cargo, succeed, works};
use crate::packages::Purpose;
use crate::steps::{Outcome, Steps};
use crate::workspace::Workspace;
use crate::{models, setup, ui};

/// Flags of `cargo xtask test`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Licences and sources too, and many more cases per property test.
    pub(crate) long: bool,
}

/// The client whose answers the test hub is measured by.
const HUGGINGFACE_HUB: &str = "2.4.0";
/// Cases per property test under `--long`; proptest's own default is 256.
const LONG_PROPTEST_CASES: &str = "4096";
/// The ordinary run tries the same cases everywhere, so that a change alone can fail it; `--long` looks for new ones.
const PROPTEST_SEED: &str = "20";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut steps = Steps::default();
    let venv = setup::prepare(workspace, &mut steps, &[Purpose::Build, Purpose::Screen])?;
    steps.need("second model of the test hub", || models::GEMMA.provide(workspace, &venv))?;
    steps.need("the hub's own client", || venv.install("huggingface_hub", HUGGINGFACE_HUB))?;

    let cargo = |args: &[&str]| {
        let mut cargo = cargo(&workspace.root);
        cargo.args(args);
        cargo
    };
    steps.check("formatting", || done(&mut cargo(&["fmt", "--all", "--check"])));
    steps.check("lints", || {
        done(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    });
    // Programs too: tests start them, and cargo builds a program only for tests of its own package.
    let built = steps.check("build", || done(&mut cargo(&["build", "--locked", "--workspace", "--all-targets"])));
    if built {
        let with_nextest = works("cargo", &["nextest", "--version"]);
        let runner: &[&str] =
            if with_nextest { &["nextest", "run", "--no-fail-fast"] } else { &["test", "--no-fail-fast"] };
        steps.check("tests, the real window among them", || {
            let mut tests = cargo(runner);
            tests.args(["--locked", "--workspace", "--all-targets"]);
            if options.long {
                tests.env("PROPTEST_CASES", LONG_PROPTEST_CASES).env("TANDEM_LONG", "1");
            } else {
                tests.env("PROPTEST_RNG_SEED", PROPTEST_SEED);
            }
            done(&mut tests)
        });
        steps.check("examples in documentation", || done(&mut cargo(&["test", "--locked", "--workspace", "--doc"])));
    } else {
        steps.skip("tests, the real window among them", "nothing to test without a build");
    }
    steps.check("licences and sources", || licences(workspace, options));
    steps.check("types of the interface", || ui::check(workspace).map(|()| Outcome::Done));
    steps.check("tests of the interface", || ui::test(workspace).map(|()| Outcome::Done));
    steps.summary()
}

fn done(command: &mut Command) -> Result<Outcome> {
    succeed(command).map(|()| Outcome::Done)
}

fn licences(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    let check = ["--all-features", "check", "bans", "licenses", "sources"];
    if works("cargo-deny", &["--version"]) {
        return done(cargo(&workspace.root).arg("deny").args(check));
    }
    let tools = workspace.tools();
    let deny: PathBuf = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !deny.is_file() {
        if !options.long {
            return Ok(Outcome::Skipped(
                "cargo-deny is not installed; `cargo xtask test --long` installs it".to_owned(),
            ));
        }
        succeed(cargo(&workspace.root).args(["install", "--locked", "cargo-deny", "--root"]).arg(&tools))?;
    }
    done(Command::new(deny).args(check).current_dir(&workspace.root))
}
