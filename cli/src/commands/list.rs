//! `tandem list`: the library, looked at again, and folders of other programs that could be used in place.
use tandem_core::api;
use tandem_core::error::size;
use tandem_core::wire::{FileRole, Integrity, LibraryFolder, LibraryModel, LibraryPlace, Text};

use crate::args::Args;
use crate::exit::refused;
use crate::open;
use crate::terminal::Terminal;

pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(args)?;
    let models = opened.wait(api::rescan_library(&opened.app))?;
    if let Some(problem) = opened.app.notices().first().filter(|_| models.is_empty()) {
        // Where the data folder cannot be used, nobody knows that there are none.
        return Err(refused(problem.clone()));
    }
    if terminal.is_json() {
        return terminal.print_json(&models);
    }
    if models.is_empty() {
        let text = Text::new(
            "No models yet. `tandem pull publisher/name` fetches one.",
            "还没有模型。用 `tandem pull 发布者/名称` 下载。",
        );
        terminal.note(terminal.say(&text));
    }
    let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    for model in &models {
        terminal.print_line(&row(model, width, terminal))?;
    }
    for folder in opened.wait(api::library_folders(&opened.app))? {
        tell(&folder, terminal);
    }
    Ok(())
}

fn row(model: &LibraryModel, width: usize, terminal: &Terminal) -> String {
    let LibraryModel { name, quant, path, .. } = model;
    let size = size(model.size_bytes);
    let integrity = match model.integrity {
        Integrity::Verified => Text::new("verified", "已校验"),
        Integrity::Unverified => Text::new("not checked", "未校验"),
        Integrity::Mismatched => Text::new("damaged", "已损坏"),
    };
    let mut programs: Vec<String> = model.places.iter().map(called).collect();
    programs.dedup();
    let parts = model.files.iter().filter(|file| file.role == FileRole::Model).count();
    let parts = if parts > 1 { format!("  ({parts})") } else { String::new() };
    let refusal = model.refusal.as_ref().map(|failure| format!("  ! {}", terminal.say(&failure.message)));
    let integrity = terminal.say(&integrity);
    let programs = programs.join(", ");
    format!(
        "{name:<width$}  {quant:<8}  {size:>9}  {integrity}  {programs}  {path}{parts}{}",
        refusal.unwrap_or_default()
    )
}

/// Whose place it is, with the name that the model has there.
fn called(place: &LibraryPlace) -> String {
    match &place.title {
        Some(title) => format!("{} ({title})", place.program.name()),
        None => place.program.name().to_owned(),
    }
}

/// What else is on this machine, and what in a folder in use could not be read.
fn tell(folder: &LibraryFolder, terminal: &Terminal) {
    let LibraryFolder { path, n_models, .. } = folder;
    let (program, size) = (folder.program.name(), size(folder.size_bytes));
    if !folder.is_used {
        let text = Text::new(
            format!("{program} keeps {n_models} models here, {size}. Use them in place: tandem add \"{path}\""),
            format!("{program} 在这里有 {n_models} 个模型，共 {size}。就地使用：tandem add \"{path}\""),
        );
        terminal.note(terminal.say(&text));
    }
    for problem in folder.problems.iter().filter(|_| folder.is_used) {
        terminal.note(&format!("! {}", terminal.say(&problem.message)));
    }
}
