//! `ui/src/lib/wire.ts` is what `core/src/wire/` says, no more and no less.
//!
//! `TANDEM_BLESS=1 cargo test -p tandem-core --test wire` writes it anew.

use std::path::PathBuf;

use tandem_core::wire;
use ts_rs::{Config, TS};

const REFRESH: &str = "TANDEM_BLESS=1 cargo test -p tandem-core --test wire";

/// The files of `core/src/wire/`, in the order in which their types are declared.
const FILES: [&str; 12] = [
    "mod",
    "settings",
    "sources",
    "hub",
    "downloads",
    "library",
    "measured",
    "hardware",
    "plan",
    "runtime",
    "chats",
    "app",
];

/// Declares every wire type, file by file in the order of `FILES`.
macro_rules! declarations {
    ($($name:ident)*) => { [$((stringify!($name), declaration::<wire::$name>())),*] };
}

fn declarations() -> Vec<(&'static str, String)> {
    declarations! {
        Text Failure ErrorCode
        Settings Language Theme Sampling
        HubKind HubSource SourceProbe Reach HashWord ProxySettings ProxyKind
        TokenState TokenPlace TokenRequest TokenKeep
        SearchRequest SearchPage HubModel RepoFile ModelPage ForeignModel ModelFormat ExternalEngine ModelVersion Companion Presence
        PlanVersionsRequest Reading PlannedVersions PlannedVersion
        DownloadRequest MoveDownloadRequest Move Download DownloadState
        LibraryModel LibraryFile LibraryPlace Program LibraryFolder AddedPaths RemoveRequest Removal VerifyProgress UpdatesFound
        Integrity FileRole
        Measured MachineRates CardRates ReadRate KernelRate Correction CalibrationState Outcome Predictions Trial Tuning TuneEvent
        Hardware RamModules Cpu Gpu GpuProbe Disk DiskKind Gauges Phase
        Wishes Tuned Aim Plan Verdict PlanLine PlanLayer Keeps TokenCost CostKind PlanChoice Part Place MemoryBar BarPart Speed FileUse Quality QualityLoss ContextStep
        RuntimeState LoadRequest LoadEvent CardMemory CardPart
        ChatSummary Chat Message Role EndReason GenerationStats
        SendRequest RenameRequest LeafRequest ChatEvent
        AppInfo Drag AppEvent
    }
    .into()
}

#[test]
fn typescript_copy_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ui/src/lib/wire.ts");
    let wanted = typescript();
    if std::env::var_os("TANDEM_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "ui/src/lib/wire.ts is stale; refresh it with `{REFRESH}`");
}

#[test]
fn every_wire_type_is_declared_in_order() {
    let sources = FILES.map(|file| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/wire").join(file).with_extension("rs");
        std::fs::read_to_string(path).unwrap()
    });
    let in_source: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum ")))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap())
        .collect();
    let declared: Vec<&str> = declarations().iter().map(|(name, _)| *name).collect();
    assert_eq!(in_source, declared);
}

#[test]
fn typescript_sees_plain_numbers() {
    assert!(!typescript().contains("bigint"), "a field lacks #[ts(type = \"number\")]");
}

fn typescript() -> String {
    let mut out = format!("// Generated from core/src/wire/; refresh with `{REFRESH}`.\n");
    for (_, declaration) in declarations() {
        out.push('\n');
        out.push_str(&declaration);
    }
    out
}

/// One exported type, with its documentation; ts-rs's own layout, tightened to a line per comment and per field.
fn declaration<T: TS>() -> String {
    let docs = one_line_comments(&T::docs().unwrap_or_default());
    let body = one_line_comments(&T::decl(&Config::new()));
    let mut lines = body.lines();
    let first = lines.next().unwrap_or_default().trim_end();
    let rest: String = lines
        .flat_map(|line| match line.trim_end().strip_suffix(" };") {
            Some(last_field) => vec![format!("  {last_field}\n"), "};\n".to_owned()],
            None => vec![format!("  {}\n", line.trim_end())],
        })
        .collect();
    format!("{docs}export {first}\n{rest}")
}

fn one_line_comments(text: &str) -> String {
    text.replace("/**\n * ", "/** ").replace("\n */", " */")
}
