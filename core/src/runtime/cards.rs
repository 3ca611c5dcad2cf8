//! What a loaded model holds on graphics cards: what the plan said beside what was allocated.

use tandem_engine::model::GpuMemory;
use tandem_engine::place::Device;

use crate::wire::{CardMemory, CardPart, Hardware, MemoryBar, Part, Plan, Text};

/// Part by part, into the log as well.
///
/// hardware  the machine as it was planned for, just before the load
pub(super) fn card_memory(plan: &Plan, hardware: &Hardware, allocated: &[GpuMemory]) -> Vec<CardMemory> {
    let of_card = |memory: &GpuMemory| {
        let Device::Cuda(index) = memory.device else { return None };
        let gpu = hardware.gpus.iter().find(|gpu| gpu.index == index)?;
        let planned = |parts: &[Part]| plan.gpu_bar.as_ref().map_or(0, |bar| bytes(bar, parts));
        let known = memory.weight_bytes.saturating_add(memory.kv_bytes).saturating_add(memory.buffer_bytes);
        // What has gone beside: the driver's own, unless somebody else took it meanwhile.
        let driver_bytes = gpu.vram_free_bytes.saturating_sub(memory.free_bytes).saturating_sub(known);
        let part = |what, planned_bytes, allocated_bytes| CardPart { what, planned_bytes, allocated_bytes };
        let parts = vec![
            part(
                Text::new("Weights", "权重"),
                planned(&[Part::Attention, Part::Experts, Part::Head]),
                memory.weight_bytes,
            ),
            part(Text::new("KV cache", "KV 缓存"), planned(&[Part::Kv]), memory.kv_bytes),
            part(
                Text::new("Buffers and driver", "缓冲区与驱动"),
                planned(&[Part::Buffers]),
                memory.buffer_bytes.saturating_add(driver_bytes),
            ),
        ];
        Some(CardMemory { index, name: gpu.name.clone(), parts, free_bytes: memory.free_bytes })
    };
    let cards: Vec<_> = allocated.iter().filter_map(of_card).collect();
    for card in &cards {
        for CardPart { what, planned_bytes, allocated_bytes } in &card.parts {
            tracing::info!(card = card.name, part = what.en, planned_bytes, allocated_bytes, "memory of a card");
        }
    }
    cards
}

/// Everything that a card gives back when the model goes.
pub(super) fn held_bytes(card: &CardMemory) -> u64 {
    card.parts.iter().fold(0, |sum, part| sum.saturating_add(part.allocated_bytes))
}

fn bytes(bar: &MemoryBar, parts: &[Part]) -> u64 {
    let counted = bar.parts.iter().filter(|part| parts.contains(&part.part));
    counted.fold(0, |sum, part| sum.saturating_add(part.bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::hardware::{ProbeOptions, Prober};
    use crate::plan::with_card;
    use crate::wire::{Gpu, Wishes};

    #[test]
    fn what_was_planned_stands_beside_what_was_allocated() {
        let plan = with_card()(&Wishes::default());
        let mut hardware = Prober::new(ProbeOptions::default()).hardware(Path::new("."));
        hardware.gpus = vec![Gpu {
            index: 0,
            name: "card".to_owned(),
            vram_total_bytes: 1000,
            vram_free_bytes: 900,
            driver: String::new(),
            load_percent: None,
            temperature_c: None,
            unusable: None,
        }];
        let memory =
            GpuMemory { device: Device::Cuda(0), weight_bytes: 500, kv_bytes: 100, buffer_bytes: 50, free_bytes: 200 };
        let cards = card_memory(&plan, &hardware, &[memory]);
        let allocated: Vec<u64> = cards[0].parts.iter().map(|part| part.allocated_bytes).collect();
        assert_eq!(allocated, [500, 100, 100], "50 of buffers, 50 that the driver took");
        assert_eq!(held_bytes(&cards[0]), 700);
        let planned: u64 = cards[0].parts.iter().map(|part| part.planned_bytes).sum();
        assert_eq!(planned, plan.gpu_bar.unwrap().parts.iter().map(|part| part.bytes).sum::<u64>());
    }
}
