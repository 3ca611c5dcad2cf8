//! `tandem plan`: whether a model runs here, how fast, and why; for a file, a library model, or all versions of a repo.
use std::path::Path;

use tandem_core::api;
use tandem_core::error::size;
use tandem_core::plan::{self, Outline, StepCost};
use tandem_core::wire::{
    MemoryBar, ModelPage, ModelVersion, Place, Plan, PlanVersionsRequest, PlannedVersion, PlannedVersions, Reading,
    Text,
};
use tandem_engine::Flow;
use tandem_engine::gguf::ModelFacts;

use crate::args::{self, Args};
use crate::exit::refused;
use crate::open::{self, Opened};
use crate::terminal::Terminal;

pub(crate) fn run(args: &args::Plan, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    if Path::new(&args.model).is_file() {
        return plan_file(Path::new(&args.model), args, global, terminal);
    }
    let opened = open::app(global)?;
    match opened.model(&args.model) {
        Ok(model) => plan_file(Path::new(&model.path), args, global, terminal),
        Err(_) if is_repo(&args.model) => plan_repo(&opened, args, terminal),
        Err(error) => Err(error),
    }
}

/// `publisher/name`, and nothing more.
fn is_repo(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(publisher, name)| !publisher.is_empty() && !name.is_empty() && !name.contains('/'))
}

fn plan_file(path: &Path, args: &args::Plan, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let facts = ModelFacts::from_file(path).map_err(refused)?;
    facts.refusal().map_err(refused)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let machine = args.machine.over(open::hardware(global, folder));
    let planned = Outline::of(&facts)
        .and_then(|outline| plan::plan_outline(&outline, &machine, &args.wishes.into(), args.machine.engine(&machine)));
    let plan = planned.map_err(refused)?;
    if terminal.is_json() {
        return terminal.print_json(&plan);
    }
    print(&plan, terminal)?;
    let cost = StepCost::of(&facts, &plan, TYPICAL_TOKENS.min(plan.context_length)).map_err(refused)?;
    if cost.n_to_card > 0 {
        terminal.print_line(&format!("\n{}", terminal.say(&cost.words())))?;
    }
    Ok(())
}

fn plan_repo(opened: &Opened, args: &args::Plan, terminal: &Terminal) -> anyhow::Result<()> {
    let page = opened.wait(api::model_page(&opened.app, args.model.clone()))?;
    if let Some(refusal) = page.refusal {
        return Err(refused(refusal));
    }
    let machine = if args.machine.is_described() {
        let here = opened.wait(api::hardware(&opened.app))?;
        Some(Box::new(args.machine.over(here)))
    } else {
        None
    };
    let request = PlanVersionsRequest {
        repo: args.model.clone(),
        wishes: args.wishes.into(),
        machine,
        card_computes: args.machine.card_computes,
        headers: if args.read_again { Reading::Again } else { Reading::Kept },
    };
    let planned = opened.wait(api::plan_versions(&opened.app, request, Box::new(|_| Flow::Continue)))?;
    match &args.quant {
        Some(quant) => {
            let index = version_index(&page, quant)?;
            plan_version(&planned.versions[index], terminal)
        }
        None if terminal.is_json() => terminal.print_json(&planned),
        None => print_versions(&page, &planned, terminal),
    }
}

/// The version with this label; else what there is.
pub(crate) fn version_index(page: &ModelPage, quant: &str) -> anyhow::Result<usize> {
    page.versions.iter().position(|version| version.quant.eq_ignore_ascii_case(quant)).ok_or_else(|| {
        let there: Vec<&str> = page.versions.iter().map(|version| version.quant.as_str()).collect();
        let there = there.join(", ");
        crate::exit::bad_request(
            Text::new(format!("there is no version `{quant}`"), format!("没有 `{quant}` 这个版本")),
            Text::new(format!("choose one of {there}"), format!("可选：{there}")),
        )
    })
}

fn plan_version(version: &PlannedVersion, terminal: &Terminal) -> anyhow::Result<()> {
    match (&version.plan, &version.refusal) {
        (Some(plan), _) if terminal.is_json() => terminal.print_json(plan),
        (Some(plan), _) => print(plan, terminal),
        (None, Some(refusal)) => Err(refused(refusal.clone())),
        (None, None) => Ok(()),
    }
}

fn print_versions(page: &ModelPage, planned: &PlannedVersions, terminal: &Terminal) -> anyhow::Result<()> {
    for (i, (version, planned_version)) in page.versions.iter().zip(&planned.versions).enumerate() {
        let mark = if planned.recommended == Some(i) { "*" } else { " " };
        terminal.print_line(&format!("{mark} {}", version_row(version, planned_version, terminal)))?;
    }
    Ok(terminal.print_line(&format!("\n{}", terminal.say(&planned.reason)))?)
}

fn version_row(version: &ModelVersion, planned: &PlannedVersion, terminal: &Terminal) -> String {
    let said = match (&planned.plan, &planned.refusal) {
        (Some(plan), _) => terminal.say(&plan.headline),
        (None, Some(refusal)) => terminal.say(&refusal.message),
        (None, None) => "",
    };
    format!("{:<12} {:>9}  {said}", version.quant, size(version.size_bytes))
}

fn print(plan: &Plan, terminal: &Terminal) -> anyhow::Result<()> {
    terminal.print_line(terminal.say(&plan.headline))?;
    for text in plan.warnings.iter().chain(&plan.cpu_computes) {
        terminal.print_line(&format!("! {}", terminal.say(text)))?;
    }
    terminal.print_line(terminal.say(&speed_words(plan)))?;
    terminal.print_line("")?;
    for (name, bar) in [("GPU", plan.gpu_bar.as_ref()), ("RAM", Some(&plan.ram_bar)), ("Disk", Some(&plan.disk_bar))] {
        if let Some(bar) = bar.filter(|bar| bar.capacity_bytes > 0) {
            terminal.print_line(&format!("{name:<6}{}", bar_words(bar)))?;
        }
    }
    terminal.print_line("")?;
    for line in &plan.lines {
        let place = match line.place {
            Place::Gpu { index } => format!("GPU {index}"),
            Place::Ram => "RAM".to_owned(),
            Place::Disk => "Disk".to_owned(),
        };
        let (size, said) = (size(line.bytes), terminal.sentences(&line.what, &line.why));
        terminal.print_line(&format!("{place:<6}{size:>10}  {said}"))?;
    }
    for choice in &plan.choices {
        terminal.print_line(&format!("{:16}  {}", "", terminal.sentences(&choice.what, &choice.why)))?;
    }
    Ok(terminal.print_line(&format!("\n{}", plan.llama_cpp_command))?)
}

/// The range around the likely speed.
fn speed_words(plan: &Plan) -> Text {
    let speed = &plan.speed;
    let (low, high) = (speed.generation_low_tokens_per_s, speed.generation_high_tokens_per_s);
    let (prompt_low, prompt_high) = (speed.prompt_low_tokens_per_s, speed.prompt_high_tokens_per_s);
    let full = speed.generation_full_tokens_per_s;
    Text::new(
        format!(
            "Writes {low:.1} to {high:.1} tokens/s, {full:.1} with a full context; reads {prompt_low:.0} to {prompt_high:.0}."
        ),
        format!(
            "每秒生成 {low:.1} 到 {high:.1} 个词元，上下文占满时 {full:.1} 个；每秒读入 {prompt_low:.0} 到 {prompt_high:.0} 个。"
        ),
    )
}

/// `[##########....------] 12.1 of 16.0 GB`: the plan, what is free, what others hold.
fn bar_words(bar: &MemoryBar) -> String {
    let planned: u64 = bar.parts.iter().map(|part| part.bytes).sum();
    let cells = |bytes: u64| (bytes as f64 / bar.capacity_bytes as f64 * BAR_CELLS as f64).round() as usize;
    let n_others = cells(bar.others_bytes).min(BAR_CELLS);
    let n_planned = cells(planned).min(BAR_CELLS - n_others);
    let n_free = BAR_CELLS - n_others - n_planned;
    let picture = format!("[{}{}{}]", "#".repeat(n_planned), ".".repeat(n_free), "-".repeat(n_others));
    let sizes = format!("{} / {}", size(planned), size(bar.capacity_bytes));
    match bar.shortfall_bytes {
        0 => format!("{picture} {sizes}"),
        short => format!("{picture} {sizes}, -{}", size(short)),
    }
}

const BAR_CELLS: usize = 40;
/// Tokens in the context of a token whose cost is told.
const TYPICAL_TOKENS: u32 = 1024;
