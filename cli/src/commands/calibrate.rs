//! `tandem calibrate`: measures how fast this machine is, and keeps the figures for plans.
use std::sync::mpsc::channel;

use tandem_core::api;
use tandem_core::wire::{AppEvent, CalibrationState, MachineRates, Text};
use tandem_engine::Flow;

use crate::args::Args;
use crate::exit::{bad_request, refused};
use crate::open;
use crate::terminal::{Bar, Terminal};

/// Steps of the bar.
const STEPS: f64 = 1000.0;

pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(args)?;
    let (sender, events) = channel();
    let sink = Box::new(move |event| match event {
        AppEvent::Calibration { state } => sender.send(state).map_or(Flow::Break, |()| Flow::Continue),
        _ => Flow::Continue,
    });
    opened.wait(api::subscribe(&opened.app, sink))?;
    opened.wait(api::start_calibration(&opened.app))?;
    let bar = terminal.bar(STEPS as u64, Bar::Share);
    for state in events {
        match state {
            CalibrationState::Running { progress } => bar.set_position((progress * STEPS) as u64),
            CalibrationState::Done { rates } => {
                bar.finish_and_clear();
                return if terminal.is_json() { terminal.print_json(&rates) } else { print(&rates, terminal) };
            }
            CalibrationState::Failed { failure } => return Err(refused(failure)),
            CalibrationState::Absent => break,
        }
    }
    Err(bad_request(
        Text::new("the benchmark was stopped", "测速已停止"),
        Text::new("run the command again", "再次运行该命令"),
    ))
}

fn print(rates: &MachineRates, terminal: &Terminal) -> anyhow::Result<()> {
    terminal.print_line(&rates.machine)?;
    for read in &rates.memory {
        let (n, rate) = (read.n_threads, read.bytes_per_s / 1e9);
        let text =
            Text::new(format!("{rate:>8.1} GB/s  memory, {n} threads"), format!("{rate:>8.1} GB/s  内存，{n} 个线程"));
        terminal.print_line(terminal.say(&text))?;
    }
    if let Some(disk) = rates.disk_bytes_per_s {
        let text = Text::new(format!("{:>8.1} GB/s  disk", disk / 1e9), format!("{:>8.1} GB/s  磁盘", disk / 1e9));
        terminal.print_line(terminal.say(&text))?;
    }
    let layer = Text::new(
        format!("{:>8.1} us    a layer of 2048 values", (rates.layer_s + 2048.0 * rates.layer_s_per_value) * 1e6),
        format!("{:>8.1} 微秒  2048 个值的一层", (rates.layer_s + 2048.0 * rates.layer_s_per_value) * 1e6),
    );
    terminal.print_line(terminal.say(&layer))?;
    let head = Text::new(
        "type        1 thread   all threads   in cache   prompt, 1 thread",
        "类型        单线程     全部线程      缓存内     提示，单线程",
    );
    terminal.print_line(&format!("\n{}", terminal.say(&head)))?;
    for kernel in &rates.kernels {
        terminal.print_line(&format!(
            "{:<8}{:>7.1} GB/s{:>9.1} GB/s{:>6.1} GB/s{:>10.0} Gop/s",
            kernel.tensor_type,
            kernel.one_thread_bytes_per_s / 1e9,
            kernel.all_threads_bytes_per_s / 1e9,
            kernel.cached_bytes_per_s / 1e9,
            kernel.prompt_ops_per_s / 1e9,
        ))?;
    }
    let took = Text::new(format!("\n{:.1} s", rates.took_ms / 1e3), format!("\n{:.1} 秒", rates.took_ms / 1e3));
    Ok(terminal.print_line(terminal.say(&took))?)
}
