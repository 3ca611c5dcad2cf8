//! A plan in the engine's terms.
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{CHECKPOINT_BYTES, LoadOptions, Preload};
use tandem_engine::place::{Budget, Device, Placement};

use super::refusal::PlanRefusal;
use crate::wire::Plan;

/// How to load a model as planned: on the processor, whatever the plan shows for a card, until the engine drives one.
///
/// Errors   `KvType` if the plan names a cache that the engine does not have
pub fn load_options(plan: &Plan) -> Result<LoadOptions, PlanRefusal> {
    let unknown = |_| PlanRefusal::KvType { kv_type: plan.kv_type.clone() };
    let kv_types: KvTypes = plan.kv_type.parse().map_err(unknown)?;
    let ram = &plan.ram_bar;
    let available = Budget { device: Device::Cpu, bytes: ram.capacity_bytes.saturating_sub(ram.others_bytes) };
    let n_planned = ram.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
    Ok(LoadOptions {
        placement: Placement::all_cpu(plan.n_layers as usize),
        budgets: vec![available],
        n_threads: plan.n_threads as usize,
        isa: None,
        context_length: plan.context_length as usize,
        kv_types,
        n_batch: plan.n_batch as usize,
        // What only saves time takes no more than half of what nobody needs.
        checkpoint_bytes: CHECKPOINT_BYTES.min(available.bytes.saturating_sub(n_planned) / 2),
        // What finds no room would only push out what was read before it.
        preload: if ram.shortfall_bytes > 0 { Preload::Nothing } else { Preload::Weights },
    })
}
