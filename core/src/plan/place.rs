//! Which parts go on the graphics card: what every token needs first (head, attention, norms, router, shared experts,
//! with their cache), then routed experts layer by layer, as far as free VRAM reaches with a margin left.
//!
//! Layers fill from the last one down, as llama.cpp counts them, so that the plan can be said in its terms.
use super::GPU_BATCH;
use super::sizes::{Sizes, sum};
use crate::wire::{Gpu, Hardware};

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
    /// Layers whose dense part and cache are on the card, counted from the last; the head is too.
    pub(super) n_layers: u32,
    /// Layers among them whose routed experts are too, counted from the last.
    pub(super) n_expert_layers: u32,
    /// Layers there were in the wish, where it could not be met.
    pub(super) unmet_wish: Option<u32>,
    pub(super) dense_bytes: u64,
    pub(super) experts_bytes: u64,
    pub(super) head_bytes: u64,
    pub(super) kv_bytes: u64,
    pub(super) buffers_bytes: u64,
}

/// The split on the card with most free memory; `None` without a card, if nothing fits, or if nothing is wished there.
///
/// `wish` counts as llama.cpp does: the head is one, each layer one more, and a layer brings its experts along.
pub(super) fn split(sizes: &Sizes, hardware: &Hardware, context: u32, wish: Option<u32>) -> Option<Split> {
    let gpu = hardware.gpus.iter().max_by_key(|gpu| (gpu.vram_free_bytes, std::cmp::Reverse(gpu.index)))?;
    if wish == Some(0) {
        return None;
    }
    let mut split = Split::empty(gpu, sizes, context);
    let mut left = budget(gpu, hardware).checked_sub(split.bytes())?;
    let n_wished = wish.map_or(sizes.n_layers(), |n| (n - 1).min(sizes.n_layers()));
    let brings_experts = wish.is_some();

    for layer in sizes.layers.iter().rev().take(n_wished as usize) {
        let kv_bytes = layer.kv.bytes(context, GPU_BATCH);
        let Some(rest) = left.checked_sub(layer.dense_bytes.saturating_add(kv_bytes)) else { break };
        left = rest;
        split.n_layers += 1;
        split.dense_bytes = split.dense_bytes.saturating_add(layer.dense_bytes);
        split.kv_bytes = split.kv_bytes.saturating_add(kv_bytes);
    }
    // Experts of a few layers would help less than the dense part of the others.
    if split.n_layers == sizes.n_layers() || brings_experts {
        for layer in sizes.layers.iter().rev().take(split.n_layers as usize) {
            let Some(rest) = left.checked_sub(layer.experts_bytes) else { break };
            left = rest;
            split.n_expert_layers += 1;
            split.experts_bytes = split.experts_bytes.saturating_add(layer.experts_bytes);
        }
    }
    split.unmet_wish = wish.filter(|_| split.n_layers < n_wished);
    Some(split)
}

/// What may be allocated on a card.
fn budget(gpu: &Gpu, hardware: &Hardware) -> u64 {
    let floor = if hardware.os.starts_with("Windows") { WINDOWS_MARGIN_BYTES } else { MARGIN_BYTES };
    let share = (gpu.vram_total_bytes as f64 * MARGIN_SHARE) as u64;
    gpu.vram_free_bytes.saturating_sub(floor.max(share))
}

impl Split {
    fn empty(gpu: &Gpu, sizes: &Sizes, context: u32) -> Self {
        Self {
            gpu: gpu.clone(),
            n_layers: 0,
            n_expert_layers: 0,
            unmet_wish: None,
            dense_bytes: 0,
            experts_bytes: 0,
            head_bytes: sizes.moved_head_bytes(),
            kv_bytes: 0,
            buffers_bytes: buffers(sizes, context),
        }
    }

    /// Everything on the card.
    pub(super) fn bytes(&self) -> u64 {
        sum([self.dense_bytes, self.experts_bytes, self.head_bytes, self.kv_bytes, self.buffers_bytes])
    }

    /// llama.cpp's `-ngl`: the head is one more layer.
    pub(super) fn n_gpu_layers(&self) -> u32 {
        self.n_layers + 1
    }

    /// Layers on the card whose experts stay in main memory.
    pub(super) fn n_cpu_moe_layers(&self, sizes: &Sizes) -> u32 {
        if sizes.has_experts() { self.n_layers - self.n_expert_layers } else { 0 }
    }

    /// llama.cpp's `--n-cpu-moe`: counted from the first layer.
    pub(super) fn n_cpu_moe_flag(&self, sizes: &Sizes) -> u32 {
        if sizes.has_experts() { sizes.n_layers() - self.n_expert_layers } else { 0 }
    }
}

/// Buffers on a card that holds the head, with the driver's share: logits and activations of a chunk, the mask.
/// Source: fit to reported compute buffers, `max(300 MiB, …) x 1.15`.
fn buffers(sizes: &Sizes, context: u32) -> u64 {
    let batch = u64::from(GPU_BATCH);
    let values = sizes.n_vocab.saturating_add(sizes.values_per_token).saturating_mul(batch);
    let mask = batch.saturating_mul(u64::from(context)).saturating_mul(MASK_BYTES);
    let bytes = values.saturating_mul(F32_BYTES).saturating_add(mask).max(300 << 20);
    bytes.saturating_add(bytes / 100 * 15).saturating_add(DRIVER_BYTES)
}
