//! A plan in the engine's terms.
use tandem_engine::kv::{KvType, KvTypes};
use tandem_engine::model::{LoadOptions, Preload};
use tandem_engine::place::{Budget, Device, Placement};

use super::refusal::PlanRefusal;
use crate::wire::Plan;

/// How to load a model as planned: on the processor, whatever the plan shows for a card, until the engine drives one.
///
/// Errors   `KvType` if the plan names a cache that the engine does not have
pub fn load_options(plan: &Plan) -> Result<LoadOptions, PlanRefusal> {
    let kv_type = match plan.kv_type.as_str() {
        "f16" => KvType::F16,
        "f32" => KvType::F32,
        other => return Err(PlanRefusal::KvType { kv_type: other.to_owned() }),
    };
    let ram = &plan.ram_bar;
    let available = Budget { device: Device::Cpu, bytes: ram.capacity_bytes.saturating_sub(ram.others_bytes) };
    Ok(LoadOptions {
        placement: Placement::all_cpu(plan.n_layers as usize),
        budgets: vec![available],
        n_threads: plan.n_threads as usize,
        isa: None,
        context_length: plan.context_length as usize,
        kv_types: KvTypes::both(kv_type),
        n_batch: plan.n_batch as usize,
        // What finds no room would only push out what was read before it.
        preload: if ram.shortfall_bytes > 0 { Preload::Nothing } else { Preload::Weights },
    })
}
