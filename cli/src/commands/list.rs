//! `tandem list`: the library.
use tandem_core::api;
use tandem_core::error::size;
use tandem_core::wire::{LibraryModel, Text};

use crate::args::Args;
use crate::open;
use crate::terminal::Terminal;

pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(args)?;
    let models = opened.wait(api::library(&opened.app))?;
    if terminal.is_json() {
        return terminal.print_json(&models);
    }
    if models.is_empty() {
        let text = Text::new(
            "No models yet. `tandem pull publisher/name` fetches one.",
            "还没有模型。用 `tandem pull 发布者/名称` 下载。",
        );
        terminal.note(terminal.say(&text));
        return Ok(());
    }
    let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    for model in &models {
        terminal.print_line(&row(model, width, terminal))?;
    }
    Ok(())
}

fn row(model: &LibraryModel, width: usize, terminal: &Terminal) -> String {
    let LibraryModel { name, quant, path, .. } = model;
    let size = size(model.size_bytes);
    let refusal = model.refusal.as_ref().map(|failure| format!("  ! {}", terminal.say(&failure.message)));
    format!("{name:<width$}  {quant:<8}  {size:>9}  {path}{}", refusal.unwrap_or_default())
}
