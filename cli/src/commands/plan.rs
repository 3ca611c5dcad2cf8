//! `tandem plan`: whether a model runs here, how fast, and why.
use std::path::Path;

use tandem_core::error::size;
use tandem_core::wire::{Place, Plan};
use tandem_engine::gguf::ModelFacts;

use crate::args::{self, Args};
use crate::exit::refused;
use crate::open;
use crate::terminal::Terminal;

pub(crate) fn run(args: &args::Plan, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let path = &args.model;
    let facts = ModelFacts::from_file(path).map_err(refused)?;
    facts.refusal().map_err(refused)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let plan = open::plan(&facts, folder, args.wishes, global)?;
    if terminal.is_json() { terminal.print_json(&plan) } else { print(&plan, terminal) }
}

fn print(plan: &Plan, terminal: &Terminal) -> anyhow::Result<()> {
    terminal.print_line(terminal.say(&plan.headline))?;
    for text in plan.warnings.iter().chain(&plan.cpu_computes) {
        terminal.print_line(&format!("! {}", terminal.say(text)))?;
    }
    terminal.print_line("")?;
    for line in &plan.lines {
        let place = match line.place {
            Place::Gpu { index } => format!("GPU {index}"),
            Place::Ram => "RAM".to_owned(),
        };
        let (size, said) = (size(line.bytes), terminal.sentences(&line.what, &line.why));
        terminal.print_line(&format!("{place:<6}{size:>10}  {said}"))?;
    }
    for choice in &plan.choices {
        terminal.print_line(&format!("{:16}  {}", "", terminal.sentences(&choice.what, &choice.why)))?;
    }
    Ok(terminal.print_line(&format!("\n{}", plan.llama_cpp_command))?)
}
