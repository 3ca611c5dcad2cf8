//! A few plans as people read them, in both languages. Look at them when they change.
use std::fmt::Write as _;

use super::shapes::{LLAMA_8B, QWEN36_35B, SMOLLM2, facts, machine};
use super::*;
use crate::error::size;
use crate::wire::{Aim, MemoryBar, Text};

#[test]
fn a_small_model_without_a_card() {
    let plan = free(&facts("SmolLM2-135M", SMOLLM2, "Q4_K_M"), &machine(None, 8.0, 5.0));
    insta::assert_snapshot!(print(&plan));
}

#[test]
fn experts_between_a_card_of_6_gb_and_memory() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    insta::assert_snapshot!(print(&with_engine(&facts, &machine(Some(6.0), 32.0, 24.5), Engine::WithGpu)));
}

#[test]
fn a_card_that_is_not_used() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    insta::assert_snapshot!(print(&free(&facts, &with_idle_card(6.0, 32.0, 24.5))));
}

#[test]
fn a_dense_model_half_on_a_card_with_wishes_that_do_not_fit() {
    let wishes =
        Wishes { context_length: Some(1 << 20), n_gpu_layers: Some(30), n_threads: Some(32), ..Wishes::default() };
    let outline = Outline::of(&facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M")).unwrap();
    let plan = plan_outline(&outline, &machine(Some(4.0), 32.0, 28.0), &wishes, Engine::WithGpu).unwrap();
    insta::assert_snapshot!(print(&plan));
}

#[test]
fn more_than_memory_holds() {
    let plan = free(&facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M"), &machine(None, 16.0, 12.0));
    insta::assert_snapshot!(print(&plan));
}

#[test]
fn reasons_for_a_version() {
    let mut text = String::new();
    for (name, shape, ram) in
        [("Qwen3.6-35B-A3B", QWEN36_35B, 28.0), ("Llama-3.1-8B", LLAMA_8B, 12.0), ("Qwen3.6-35B-A3B", QWEN36_35B, 0.7)]
    {
        let plans: Vec<_> = shapes::QUANTS
            .iter()
            .map(|(quant, ..)| {
                let facts = facts(name, shape, quant);
                (*quant, facts.file_bytes, plan(&facts, &machine(None, 32.0, ram), &Wishes::default()).ok())
            })
            .collect();
        let candidates: Vec<_> = plans
            .iter()
            .map(|(quant, size_bytes, plan)| Candidate {
                quant,
                size_bytes: *size_bytes,
                plan: plan.as_ref(),
                is_unread: false,
            })
            .collect();
        let reason = pick(&candidates, Aim::Balanced).reason;
        writeln!(text, "{name}, {ram} GB\n  {}\n  {}", reason.en, reason.zh).unwrap();
    }
    insta::assert_snapshot!(text);
}

fn print(plan: &Plan) -> String {
    let mut out = String::new();
    let both = |text: &Text| format!("{}\n      {}", text.en, text.zh);
    writeln!(out, "{:?}: {}", plan.verdict, both(&plan.headline)).unwrap();
    for line in &plan.lines {
        writeln!(out, "{:>10} {:?} {:?}", size(line.bytes), line.place, line.part).unwrap();
        writeln!(out, "      {}\n      {}", both(&line.what), both(&line.why)).unwrap();
    }
    for choice in &plan.choices {
        writeln!(out, "  choice {}\n      {}", both(&choice.what), both(&choice.why)).unwrap();
    }
    for bar in [plan.gpu_bar.as_ref(), Some(&plan.ram_bar)].into_iter().flatten() {
        writeln!(out, "{}", print_bar(bar)).unwrap();
    }
    writeln!(out, "speed {:.1?}", plan.speed).unwrap();
    let places: Vec<char> = plan.layers.iter().map(|layer| letter(layer.mixer)).collect();
    let experts: Vec<char> = plan.layers.iter().map(|layer| layer.experts.map_or('-', letter)).collect();
    writeln!(out, "layer {}\n      {}", String::from_iter(places), String::from_iter(experts)).unwrap();
    for cost in &plan.token_costs {
        writeln!(out, "{:>7.2} ms {}", cost.ms, both(&cost.what)).unwrap();
    }
    for text in plan.cpu_computes.iter().chain(&plan.warnings) {
        writeln!(out, "note  {}", both(text)).unwrap();
    }
    writeln!(out, "{}", plan.llama_cpp_command).unwrap();
    out
}

fn letter(place: Place) -> char {
    match place {
        Place::Gpu { .. } => 'g',
        Place::Ram => 'm',
        Place::Disk => 'd',
    }
}

fn print_bar(bar: &MemoryBar) -> String {
    let parts: Vec<_> = bar.parts.iter().map(|part| format!("{:?} {}", part.part, size(part.bytes))).collect();
    let (all, others) = (size(bar.capacity_bytes), size(bar.others_bytes));
    format!("bar   {all}, others {others}, short {}: {}", size(bar.shortfall_bytes), parts.join(", "))
}
