//! Parts that stay with the processor although a placement wants them on a GPU, because no kernel multiplies weights of their
//! type there. The rest of the placement is obeyed, and the load says what stays.

use std::fmt;

use super::{Device, Ffn, Placement};
use crate::cuda;
use crate::gguf::{ModelFacts, TensorFacts, TensorType};
use crate::quant;

/// What a placement moves as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacePart {
    /// The token embedding.
    Embed,
    /// What mixes tokens in a layer, with its cache.
    Mixer(usize),
    /// The feed-forward half of a layer, or its router and shared expert.
    Ffn(usize),
    /// The routed experts of a layer.
    Experts(usize),
    /// The output norm and head.
    Head,
}

/// A part that stays with the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staying {
    /// Which one.
    pub part: PlacePart,
    /// Where the placement wanted it.
    pub wanted: Device,
    /// The first of its tensors that keeps it.
    pub tensor: String,
    /// The type that there is no kernel for.
    pub tensor_type: TensorType,
}

impl Placement {
    /// The same without what GPUs have no kernel for, and what that is. A layer's cache stays with its mixer; where layers read
    /// each other's caches, all mixers stay together. Experts of models without any are nowhere.
    pub fn with_kernels(&self, facts: &ModelFacts) -> (Self, Vec<Staying>) {
        let mut placement = self.clone();
        if facts.arch_u32_or("expert_count", 0).is_ok_and(|n_experts| n_experts == 0) {
            placement.layers.iter_mut().for_each(|layer| layer.ffn = Ffn::Dense(layer.ffn.home()));
        }
        let mut staying: Vec<Staying> = Vec::new();
        let mut keep = |placement: &mut Placement, part, tensor: &TensorFacts| {
            let wanted = placement.keep(part);
            staying.extend(wanted.map(|wanted| Staying {
                part,
                wanted,
                tensor: tensor.name.clone(),
                tensor_type: tensor.tensor_type,
            }));
        };
        let shares_caches = facts.arch_u32_or("attention.shared_kv_layers", 0).is_ok_and(|n_layers| n_layers > 0);
        let is_tied = facts.tensor("output.weight").is_none();
        for tensor in facts.tensors.iter().filter(|tensor| has_no_kernel(tensor)) {
            let part = self.part_of(&tensor.name);
            match part {
                PlacePart::Mixer(_) if shares_caches => {
                    (0..self.layers.len()).for_each(|layer| keep(&mut placement, PlacePart::Mixer(layer), tensor));
                }
                PlacePart::Embed if is_tied && tensor.name == "token_embd.weight" => {
                    keep(&mut placement, part, tensor);
                    keep(&mut placement, PlacePart::Head, tensor);
                }
                _ => keep(&mut placement, part, tensor),
            }
        }
        (placement, staying)
    }

    /// Takes a part to the processor. Says where it was, unless it was there already.
    fn keep(&mut self, part: PlacePart) -> Option<Device> {
        fn take(device: &mut Device) -> Option<Device> {
            let wanted = std::mem::replace(device, Device::Cpu);
            (wanted != Device::Cpu).then_some(wanted)
        }
        match part {
            PlacePart::Embed => take(&mut self.embed),
            PlacePart::Head => take(&mut self.head),
            PlacePart::Mixer(layer) => {
                let place = self.layers.get_mut(layer)?;
                place.kv = Device::Cpu;
                take(&mut place.mixer)
            }
            PlacePart::Ffn(layer) => match &mut self.layers.get_mut(layer)?.ffn {
                Ffn::Dense(device) | Ffn::Experts { shared: device, .. } => take(device),
            },
            PlacePart::Experts(layer) => {
                let ffn = &mut self.layers.get_mut(layer)?.ffn;
                if let Ffn::Dense(device) = *ffn {
                    *ffn = Ffn::Experts { shared: device, routed: device, cached: None };
                }
                let Ffn::Experts { routed, cached, .. } = ffn else { return None };
                let copies = cached.take().map(|(device, _)| device);
                take(routed).or(copies)
            }
        }
    }
}

/// Small tensors are decoded at load, whatever their type; types that the engine does not know at all are refused elsewhere.
fn has_no_kernel(tensor: &TensorFacts) -> bool {
    let TensorFacts { tensor_type, shape, .. } = tensor;
    shape.len() >= 2 && quant::supports(*tensor_type) && !cuda::supports(*tensor_type)
}

impl fmt::Display for PlacePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embed => f.write_str("the embedding"),
            Self::Mixer(layer) => write!(f, "the mixer of layer {layer}"),
            Self::Ffn(layer) => write!(f, "the feed-forward half of layer {layer}"),
            Self::Experts(layer) => write!(f, "the experts of layer {layer}"),
            Self::Head => f.write_str("the head"),
        }
    }
}

impl fmt::Display for Staying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, wanted, tensor, tensor_type } = self;
        write!(f, "{part} stays with the processor: {wanted} has no kernel for {tensor_type} (`{tensor}`)")
    }
}
