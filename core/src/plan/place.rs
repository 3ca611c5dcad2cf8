//! Which parts a card can hold. What every token needs comes first (head, attention, norms, router, shared experts, with
//! their cache), then routed experts layer by layer, as far as free VRAM reaches with a margin left.
//!
//! Layers fill from the last one down, as llama.cpp counts them, so that the plan can be said in its terms. Which of the
//! ways to fill a card is best is not decided here.
use tandem_engine::kv::KvTypes;

use super::sizes::{Sizes, sum};
use super::{GPU_BATCH, MAX_BATCH};
use crate::wire::{Gpu, Hardware, Wishes};

/// Left free on a card: other programs breathe, and a display driver that runs short moves memory silently.
/// Source: llama.cpp leaves 1024 MiB, of which the driver's share is counted apart here.
const MARGIN_BYTES: u64 = 600 << 20;
/// On Windows the desktop and the driver model hold more back.
const WINDOWS_MARGIN_BYTES: u64 = 1 << 30;
/// And not less than this share of the card.
const MARGIN_SHARE: f64 = 0.05;
/// What the driver takes for a process that computes. Source: 107 to 555 MiB reported for llama.cpp, by card.
const DRIVER_BYTES: u64 = 400 << 20;
/// Bytes of an f32, and of a mask's f16.
const F32_BYTES: u64 = 4;
const MASK_BYTES: u64 = 2;

/// A model in two parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Split {
    pub(super) gpu: Gpu,
    /// Tokens of a prompt that are computed at once, on both devices.
    pub(super) n_batch: u32,
    /// Layers whose dense part is on the card, counted from the last; the head is too.
    pub(super) n_layers: u32,
    /// Layers among them whose routed experts are too, counted from the last.
    pub(super) n_expert_layers: u32,
    pub(super) dense_bytes: u64,
    pub(super) experts_bytes: u64,
    pub(super) head_bytes: u64,
    pub(super) kv_bytes: u64,
    pub(super) buffers_bytes: u64,
}

/// What a layer brings along when it goes on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Its dense part first; experts when all dense parts are there.
    DenseFirst,
    /// All of it or nothing: a plain layer split.
    WholeLayers,
}

/// A context, as far as it takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) length: u32,
    pub(super) kv_types: KvTypes,
}

/// The ways to fill the card with most free memory, the usual one first; none without a card, if nothing fits, or if nothing
/// is wished there.
///
/// `n_gpu_layers` counts as llama.cpp does, from the end: the head is one, each layer one more, those that predict further ahead
/// among them, and a layer brings its experts along.
pub(super) fn splits(
    sizes: &Sizes,
    hardware: &Hardware,
    context: Context,
    n_gpu_layers: Option<u32>,
    wishes: &Wishes,
) -> Vec<Split> {
    let Some(gpu) = card(hardware).filter(|_| n_gpu_layers != Some(0)) else { return Vec::new() };
    let n_layers = sizes.n_layers();
    let n_most_experts = wishes.n_expert_layers.unwrap_or(n_layers);
    let n_batch = wishes.n_batch.map_or(GPU_BATCH, |n| n.clamp(1, MAX_BATCH));
    let room = Room { sizes, gpu, budget_bytes: budget(gpu, hardware), context, n_batch, n_most_experts };
    if let Some(wish) = n_gpu_layers {
        let n_most = wish.saturating_sub(1 + sizes.n_layers_ahead).min(n_layers);
        return room.fill(Fill::WholeLayers, n_most).into_iter().collect();
    }
    let mut ways = vec![room.fill(Fill::DenseFirst, n_layers)];
    if sizes.has_experts() {
        ways.push(room.fill(Fill::WholeLayers, n_layers));
    }
    ways.into_iter().flatten().collect()
}

/// The card that is used: one that computes, then the one with most free memory.
pub(super) fn card(hardware: &Hardware) -> Option<&Gpu> {
    let rank = |gpu: &&Gpu| (gpu.unusable.is_none(), gpu.vram_free_bytes, std::cmp::Reverse(gpu.index));
    hardware.gpus.iter().max_by_key(rank)
}

/// What may be allocated on a card.
fn budget(gpu: &Gpu, hardware: &Hardware) -> u64 {
    gpu.vram_free_bytes.saturating_sub(margin(gpu, hardware))
}

/// What is left free on a card.
pub(super) fn margin(gpu: &Gpu, hardware: &Hardware) -> u64 {
    let floor = if is_windows(hardware) { WINDOWS_MARGIN_BYTES } else { MARGIN_BYTES };
    floor.max((gpu.vram_total_bytes as f64 * MARGIN_SHARE) as u64)
}

pub(super) fn is_windows(hardware: &Hardware) -> bool {
    hardware.os.starts_with("Windows")
}

/// A card to be filled.
struct Room<'a> {
    sizes: &'a Sizes,
    gpu: &'a Gpu,
    budget_bytes: u64,
    context: Context,
    n_batch: u32,
    /// Most layers whose experts may lie here.
    n_most_experts: u32,
}

impl Room<'_> {
    /// As much as fits; what the card cannot multiply stays with what lies before it.
    fn fill(&self, fill: Fill, n_most: u32) -> Option<Split> {
        let sizes = self.sizes;
        if sizes.is_head_foreign {
            return None;
        }
        let is_capped = fill == Fill::WholeLayers && sizes.has_experts();
        let n_most = if is_capped { n_most.min(self.n_most_experts) } else { n_most };
        let mut split = Split {
            gpu: self.gpu.clone(),
            n_batch: self.n_batch,
            n_layers: 0,
            n_expert_layers: 0,
            dense_bytes: 0,
            experts_bytes: 0,
            head_bytes: sizes.moved_head_bytes(),
            kv_bytes: 0,
            buffers_bytes: buffers(sizes, self.context.length, self.n_batch),
        };
        let mut left = self.budget_bytes.checked_sub(split.bytes())?;
        for layer in sizes.layers.iter().rev().take(n_most as usize) {
            if layer.is_dense_foreign || (fill == Fill::WholeLayers && layer.is_experts_foreign) {
                break;
            }
            let kv_bytes = layer.kv.bytes(self.context.length, self.n_batch, self.context.kv_types);
            let experts_bytes = if fill == Fill::WholeLayers { layer.experts_bytes } else { 0 };
            let Some(rest) = left.checked_sub(sum([layer.dense_bytes, kv_bytes, experts_bytes])) else { break };
            left = rest;
            split.n_layers += 1;
            split.n_expert_layers += u32::from(fill == Fill::WholeLayers);
            split.dense_bytes = split.dense_bytes.saturating_add(layer.dense_bytes);
            split.kv_bytes = split.kv_bytes.saturating_add(kv_bytes);
            split.experts_bytes = split.experts_bytes.saturating_add(experts_bytes);
        }
        // Experts of a few layers would help less than the dense part of the others.
        if fill == Fill::DenseFirst && split.n_layers == sizes.n_layers() {
            for layer in sizes.layers.iter().rev().take(self.n_most_experts as usize) {
                let Some(rest) = left.checked_sub(layer.experts_bytes).filter(|_| !layer.is_experts_foreign) else {
                    break;
                };
                left = rest;
                split.n_expert_layers += 1;
                split.experts_bytes = split.experts_bytes.saturating_add(layer.experts_bytes);
            }
        }
        (split.n_layers == 0 || split.n_layers >= sizes.n_joined_layers()).then_some(split)
    }
}

impl Split {
    /// Everything on the card.
    pub(super) fn bytes(&self) -> u64 {
        sum([self.dense_bytes, self.experts_bytes, self.head_bytes, self.kv_bytes, self.buffers_bytes])
    }

    /// What of it is weights.
    pub(super) fn weights_bytes(&self) -> u64 {
        sum([self.dense_bytes, self.experts_bytes, self.head_bytes])
    }

    /// llama.cpp's `-ngl`: the head is one more layer, and those that predict further ahead lie before it.
    pub(super) fn n_gpu_layers(&self, sizes: &Sizes) -> u32 {
        self.n_layers + sizes.n_layers_ahead + 1
    }

    /// Layers on the card whose experts stay in main memory.
    pub(super) fn n_cpu_moe_layers(&self, sizes: &Sizes) -> u32 {
        if sizes.has_experts() { self.n_layers - self.n_expert_layers } else { 0 }
    }

    /// llama.cpp's `--n-cpu-moe`: counted from the first layer; 0 where a plain split says the same.
    pub(super) fn n_cpu_moe_flag(&self, sizes: &Sizes) -> u32 {
        if self.n_cpu_moe_layers(sizes) > 0 { sizes.n_layers() - self.n_expert_layers } else { 0 }
    }

    /// Layers that are on the card with all their weights.
    pub(super) fn n_whole_layers(&self, sizes: &Sizes) -> u32 {
        if sizes.has_experts() { self.n_expert_layers } else { self.n_layers }
    }
}

/// Buffers on a card that holds the head, with the driver's share: logits and activations of a chunk, the mask.
/// Source: fit to reported compute buffers, `max(300 MiB, …) x 1.15`.
fn buffers(sizes: &Sizes, context: u32, n_batch: u32) -> u64 {
    let batch = u64::from(n_batch);
    let values = sizes.n_vocab.saturating_add(sizes.values_per_token).saturating_mul(batch);
    let mask = batch.saturating_mul(u64::from(context)).saturating_mul(MASK_BYTES);
    let bytes = values.saturating_mul(F32_BYTES).saturating_add(mask).max(300 << 20);
    bytes.saturating_add(bytes / 100 * 15).saturating_add(DRIVER_BYTES)
}
