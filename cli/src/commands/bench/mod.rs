//! `tandem bench`: prompt processing and generation at any depth, each several times, beside what the memory could give; how
//! long a load and a stop take; what memory was held; and, if asked, what each operation takes.
//!
//! A stop takes as long as the engine ever works without looking at the stop button, which it does between the halves of
//! each layer.
mod measure;
mod report;
mod table;

use crate::args::{self, Args};
use crate::open;
use crate::terminal::Terminal;

pub(crate) fn run(args: &args::Bench, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let path = open::model_path(&args.model, global)?;
    let report = measure::measure(args, &path, global, terminal)?;
    if terminal.is_json() { terminal.print_json(&report) } else { Ok(terminal.print(&table::of(&report, terminal))?) }
}
