//! A plan in the engine's terms.
use tandem_engine::kv::KvTypes;
use tandem_engine::model::{CHECKPOINT_BYTES, LoadOptions, Preload};
use tandem_engine::place::{Budget, Device, Ffn, LayerPlace, Placement};

use super::refusal::PlanRefusal;
use crate::wire::{BarPart, FileUse, MemoryBar, Part, Place, Plan, PlanLayer};

/// How to load a model as planned; on the processor, whatever the plan shows for a card, where that does not compute.
///
/// Errors   `KvType` if the plan names a cache that the engine does not have
pub fn load_options(plan: &Plan) -> Result<LoadOptions, PlanRefusal> {
    let unknown = |_| PlanRefusal::KvType { kv_type: plan.kv_type.clone() };
    let kv_types: KvTypes = plan.kv_type.parse().map_err(unknown)?;
    let ram = &plan.ram_bar;
    let placement = if is_card_used(plan) { placement(plan) } else { Placement::all_cpu(plan.n_layers as usize) };
    let available = Budget { device: Device::Cpu, bytes: free_bytes(ram) };
    let card = placement.devices().into_iter().find(|device| *device != Device::Cpu);
    let on_card = card.zip(plan.gpu_bar.as_ref()).map(|(device, bar)| Budget { device, bytes: free_bytes(bar) });
    Ok(LoadOptions {
        placement,
        budgets: std::iter::once(available).chain(on_card).collect(),
        n_threads: plan.n_threads as usize,
        isa: None,
        context_length: plan.context_length as usize,
        kv_types,
        n_batch: plan.n_batch as usize,
        checkpoint_bytes: checkpoint_bytes(&ram.parts, available.bytes),
        preload: match plan.file_use {
            FileUse::ReadAhead => Preload::Weights,
            FileUse::AsNeeded => Preload::Nothing,
            FileUse::Copied => Preload::Copy,
        },
    })
}

/// Whether a card computes its share of a plan now.
pub(crate) fn is_card_used(plan: &Plan) -> bool {
    plan.gpu_bar.is_some() && plan.cpu_computes.is_none()
}

/// Layers whose routed experts a card holds and computes.
pub(crate) fn n_expert_layers_on_card(plan: &Plan) -> u32 {
    let is_there = |layer: &&PlanLayer| matches!(layer.experts, Some(Place::Gpu { .. }));
    if is_card_used(plan) { plan.layers.iter().filter(is_there).count() as u32 } else { 0 }
}

/// Layers of which a card computes what every token needs.
pub(crate) fn n_layers_on_card(plan: &Plan) -> u32 {
    let is_there = |layer: &&PlanLayer| matches!(layer.mixer, Place::Gpu { .. });
    if is_card_used(plan) { plan.layers.iter().filter(is_there).count() as u32 } else { 0 }
}

/// Layer by layer as the plan says; the head lies with the last layers, embeddings in main memory.
fn placement(plan: &Plan) -> Placement {
    let layer = |layer: &PlanLayer| {
        let mixer = device(layer.mixer);
        let ffn = match layer.experts {
            Some(experts) => Ffn::Experts { shared: mixer, routed: device(experts), cached: None },
            None => Ffn::Dense(mixer),
        };
        LayerPlace { mixer, kv: device(layer.cache), ffn }
    };
    let card = plan.lines.iter().map(|line| device(line.place)).find(|device| *device != Device::Cpu);
    Placement { embed: Device::Cpu, layers: plan.layers.iter().map(layer).collect(), head: card.unwrap_or(Device::Cpu) }
}

fn device(place: Place) -> Device {
    match place {
        Place::Gpu { index } => Device::Cuda(index),
        Place::Ram | Place::Disk => Device::Cpu,
    }
}

fn free_bytes(bar: &MemoryBar) -> u64 {
    bar.capacity_bytes.saturating_sub(bar.others_bytes)
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
