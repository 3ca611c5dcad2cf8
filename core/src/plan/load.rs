//! A plan in the engine's terms.
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{CHECKPOINT_BYTES, LoadOptions, Preload};
use tandem_engine::place::{Budget, Device, Placement};

use super::refusal::PlanRefusal;
use crate::wire::{BarPart, FileUse, Part, Plan};

/// How to load a model as planned: on the processor, whatever the plan shows for a card, until the engine drives one.
///
/// Errors   `KvType` if the plan names a cache that the engine does not have
pub fn load_options(plan: &Plan) -> Result<LoadOptions, PlanRefusal> {
    let unknown = |_| PlanRefusal::KvType { kv_type: plan.kv_type.clone() };
    let kv_types: KvTypes = plan.kv_type.parse().map_err(unknown)?;
    let ram = &plan.ram_bar;
    let available = Budget { device: Device::Cpu, bytes: ram.capacity_bytes.saturating_sub(ram.others_bytes) };
    Ok(LoadOptions {
        placement: Placement::all_cpu(plan.n_layers as usize),
        budgets: vec![available],
        n_threads: plan.n_threads as usize,
        isa: None,
        context_length: plan.context_length as usize,
        kv_types,
        n_batch: plan.n_batch as usize,
        checkpoint_bytes: checkpoint_bytes(&ram.parts, available.bytes),
        preload: match plan.file_use {
            FileUse::ReadAhead => Preload::Weights,
            FileUse::AsNeeded => Preload::Nothing,
        },
    })
}

/// Memory for checkpoints: half of what nobody needs, and where that is little, a small share of what the weights would have, since
/// weights can be read again sooner than a conversation.
fn checkpoint_bytes(parts: &[BarPart], available_bytes: u64) -> u64 {
    let left_by = |is_counted: fn(Part) -> bool| {
        let counted = parts.iter().filter(|part| is_counted(part.part));
        counted.fold(available_bytes, |left, part| left.saturating_sub(part.bytes))
    };
    let share = left_by(|part| matches!(part, Part::Kv | Part::Buffers)) / 16;
    (left_by(|_| true) / 2).clamp(share.min(CHECKPOINT_BYTES / 4), CHECKPOINT_BYTES)
}
