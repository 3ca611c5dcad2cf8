//! `tandem tune`: tries plans near the best one on the real engine, and keeps the fastest for later loads.
use std::sync::mpsc::channel;

use tandem_core::api;
use tandem_core::wire::{FileUse, LoadRequest, Text, Trial, TuneEvent, Tuning, Wishes};
use tandem_engine::Flow;

use crate::args::{self, Args};
use crate::exit::{bad_request, refused};
use crate::open;
use crate::terminal::{Bar, Terminal};

/// Steps of the bar.
const STEPS: f64 = 1000.0;

pub(crate) fn run(args: &args::Tune, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(global)?;
    let model = opened.model(&args.model)?;
    if args.forget {
        return opened.wait(api::forget_tuning(&opened.app, model.id));
    }
    let wishes = Wishes { context_length: args.context_length, ..Wishes::default() };
    let bar = terminal.bar(STEPS as u64, Bar::Share);
    bar.set_message(model.name.clone());
    let (sender, ended) = channel();
    let own_bar = bar.clone();
    let sink = Box::new(move |event| {
        match event {
            TuneEvent::Tried { progress, .. } => own_bar.set_position((progress * STEPS) as u64),
            // Nobody waits any more if this fails.
            last => drop(sender.send(last)),
        }
        Flow::Continue
    });
    opened.wait(api::tune_model(&opened.app, LoadRequest { model_id: model.id, wishes }, sink))?;
    bar.finish_and_clear();
    match ended.try_iter().last() {
        Some(TuneEvent::Done { tuning }) if terminal.is_json() => terminal.print_json(&tuning),
        Some(TuneEvent::Done { tuning }) => print(&tuning, terminal),
        Some(TuneEvent::Failed { failure }) => Err(refused(failure)),
        _ => Err(bad_request(
            Text::new("auto-tune was stopped", "自动调优已停止"),
            Text::new("run the command again", "再次运行该命令"),
        )),
    }
}

fn print(tuning: &Tuning, terminal: &Terminal) -> anyhow::Result<()> {
    let head = Text::new(
        "  threads   batch   cache   file        prompt     answer",
        "  线程      批次    缓存    文件         提示       回答",
    );
    terminal.print_line(terminal.say(&head))?;
    for trial in &tuning.trials {
        let Trial { n_threads, n_batch, kv_type, file_use, prompt_tokens_per_s, tokens_per_s, is_safe } = trial;
        let is_kept = (*n_threads, *n_batch, kv_type, file_use)
            == (tuning.n_threads, tuning.n_batch, &tuning.kv_type, &tuning.file_use);
        let file = match file_use {
            FileUse::Copied => Text::new("copied", "复制"),
            FileUse::ReadAhead | FileUse::AsNeeded => Text::new("mapped", "映射"),
        };
        let file = terminal.say(&file);
        let mark = if is_kept { "*" } else { " " };
        let not_safe = Text::new("  not safe: memory is short", "  不安全：内存不足");
        let note = if *is_safe { "" } else { terminal.say(&not_safe) };
        terminal.print_line(&format!(
            "{mark} {n_threads:>7}{n_batch:>8}   {kv_type:<6}  {file:<6}{prompt_tokens_per_s:>12.1}{tokens_per_s:>11.1}{note}"
        ))?;
    }
    for text in &tuning.not_tried {
        terminal.note(terminal.say(text));
    }
    let took = Text::new(format!("{:.0} s", tuning.took_ms / 1e3), format!("{:.0} 秒", tuning.took_ms / 1e3));
    terminal.note(terminal.say(&took));
    Ok(())
}
