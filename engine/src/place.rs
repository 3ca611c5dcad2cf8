//! Where the parts of a model live: plain data that the planner builds, that is checked again at load and that the layer
//! loop obeys. Nothing here decides anything; it says, checks and prints.

mod stay;

use std::fmt;

use crate::error::EngineError;
use crate::gguf::ModelFacts;
pub use stay::{PlacePart, Staying};

/// A device that holds weights and computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The processor and main memory.
    Cpu,
    /// A CUDA GPU, by its index.
    Cuda(u32),
}

/// Where every part of a model lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The token embedding.
    pub embed: Device,
    /// Each layer, in order.
    pub layers: Vec<LayerPlace>,
    /// The output norm and head.
    pub head: Device,
}

/// Where the parts of one layer live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlace {
    /// Attention or whatever else mixes tokens, with its norm.
    pub mixer: Device,
    /// The layer's cache or recurrent state.
    pub kv: Device,
    /// The feed-forward half, with its norm.
    pub ffn: Ffn,
}

/// Where a feed-forward half lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ffn {
    /// One network, on one device.
    Dense(Device),
    /// Experts.
    Experts {
        /// The router and the shared expert.
        shared: Device,
        /// The routed experts.
        routed: Device,
        /// A GPU that has copies of some experts of the processor's, and of how many: it computes these while the processor
        /// computes the others. First those with the lowest index; what changes that is `ExpertPolicy`.
        cached: Option<(Device, usize)>,
    },
}

/// Memory that a placement may take on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The device.
    pub device: Device,
    /// Memory for what is allocated there: weights (but not those read from the mapped file), caches and buffers.
    pub bytes: u64,
}

/// What the parts of a model take, as far as it must be allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Weights that were copied to GPUs, by GPU; those of the processor are read from the mapped file.
    pub weight_bytes: Vec<(Device, u64)>,
    /// Caches, one figure per layer.
    pub kv_bytes: Vec<u64>,
    /// Checkpoints of the caches; they live in main memory.
    pub checkpoint_bytes: u64,
    /// Buffers of the forward pass; every device that takes part has all of them.
    pub buffer_bytes: u64,
}

impl Placement {
    /// Everything on the processor, with dense feed-forward halves.
    pub fn all_cpu(n_layers: usize) -> Self {
        let layer = LayerPlace { mixer: Device::Cpu, kv: Device::Cpu, ffn: Ffn::Dense(Device::Cpu) };
        Self { embed: Device::Cpu, layers: vec![layer; n_layers], head: Device::Cpu }
    }

    /// The last `n_gpu_layers` layers on a GPU and the rest with the processor, the head counted as one layer more: what
    /// llama.cpp calls `-ngl`.
    ///
    /// routed   where routed experts of those layers live
    pub fn last_layers_on(gpu: Device, n_layers: usize, n_gpu_layers: usize, routed: Device) -> Self {
        let mut placement = Self::layers_over(&[(gpu, n_gpu_layers.min(n_layers))], n_layers, |_| routed);
        placement.head = if n_gpu_layers > n_layers { gpu } else { Device::Cpu };
        placement
    }

    /// The last layers on several devices, one after another, and those before with the processor; the head with the last.
    ///
    /// devices  with the number of layers of each; together no more than there are
    /// routed   where routed experts of a device's layers live
    pub fn layers_over(devices: &[(Device, usize)], n_layers: usize, routed: impl Fn(Device) -> Device) -> Self {
        let mut placement = Self::all_cpu(n_layers);
        let n_there = devices.iter().map(|(_, n_layers)| n_layers).sum::<usize>();
        let mut layers = placement.layers[n_layers.saturating_sub(n_there)..].iter_mut();
        for &(device, n_layers) in devices {
            let ffn = Ffn::Experts { shared: device, routed: routed(device), cached: None };
            layers.by_ref().take(n_layers).for_each(|layer| *layer = LayerPlace { mixer: device, kv: device, ffn });
            placement.head = device;
        }
        placement
    }

    /// Every device named, sorted, once each.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices = vec![self.embed, self.head];
        for layer in &self.layers {
            devices.extend([layer.mixer, layer.kv]);
            devices.extend(layer.ffn.devices());
        }
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Refuses a placement that does not match a model of `n_layers`, keeps a cache elsewhere than its mixer, or wants copies of
    /// experts other than the processor's on a GPU.
    pub fn check(&self, n_layers: usize) -> Result<(), EngineError> {
        if self.layers.len() != n_layers {
            return Err(EngineError::PlacementLayers { expected: n_layers, got: self.layers.len() });
        }
        self.layers.iter().enumerate().try_for_each(|(layer, place)| match *place {
            LayerPlace { mixer, kv, .. } if mixer != kv => Err(EngineError::CacheApart { layer, mixer, kv }),
            LayerPlace { ffn: Ffn::Experts { routed, cached: Some((device, _)), .. }, .. }
                if routed != Device::Cpu || device == Device::Cpu =>
            {
                Err(EngineError::ExpertCopies { layer, routed, device })
            }
            _ => Ok(()),
        })
    }

    /// What is allocated on a device: weights, caches, buffers, checkpoints.
    pub fn parts(&self, footprint: &Footprint, device: Device) -> [u64; 4] {
        let sum = |parts: &mut dyn Iterator<Item = u64>| parts.fold(0u64, u64::saturating_add);
        let weights = footprint.weight_bytes.iter().filter(|(there, _)| *there == device);
        let kv = self.layers.iter().zip(&footprint.kv_bytes).filter(|(layer, _)| layer.kv == device);
        [
            sum(&mut weights.map(|(_, bytes)| *bytes)),
            sum(&mut kv.map(|(_, bytes)| *bytes)),
            if self.devices().contains(&device) { footprint.buffer_bytes } else { 0 },
            if device == Device::Cpu { footprint.checkpoint_bytes } else { 0 },
        ]
    }

    /// Where a tensor of a model goes, by its name.
    pub fn device_of(&self, tensor: &str) -> Device {
        match self.part_of(tensor) {
            PlacePart::Embed => self.embed,
            PlacePart::Mixer(layer) => self.layers[layer].mixer,
            PlacePart::Ffn(layer) => self.layers[layer].ffn.home(),
            PlacePart::Experts(layer) => self.layers[layer].ffn.routed(),
            PlacePart::Head => self.head,
        }
    }

    /// What a tensor of a model belongs to, by its name.
    fn part_of(&self, tensor: &str) -> PlacePart {
        match ModelFacts::layer_of(tensor).filter(|(layer, _)| *layer < self.layers.len()) {
            Some((layer, name)) if is_of_experts(name) => PlacePart::Experts(layer),
            Some((layer, name)) if name.contains("ffn_") || name.starts_with("exp_") => PlacePart::Ffn(layer),
            Some((layer, _)) => PlacePart::Mixer(layer),
            None if tensor.starts_with("output") => PlacePart::Head,
            None => PlacePart::Embed,
        }
    }

    /// Refuses a placement that needs more than a budget gives. A device without a budget is not checked.
    pub fn check_budgets(&self, footprint: &Footprint, budgets: &[Budget]) -> Result<(), EngineError> {
        for &Budget { device, bytes: available_bytes } in budgets {
            let needed_bytes = self.parts(footprint, device).into_iter().fold(0, u64::saturating_add);
            if needed_bytes > available_bytes {
                return Err(EngineError::DoesNotFit { device, needed_bytes, available_bytes });
            }
        }
        Ok(())
    }
}

/// Whether a tensor holds routed experts: all of them or, in old files, one (`ffn_up.3.weight`).
fn is_of_experts(name: &str) -> bool {
    let is_one = |name: &str| name.split('.').nth(1).is_some_and(|index| index.parse::<usize>().is_ok());
    name.contains("_exps") || (name.starts_with("ffn_") && is_one(name))
}

impl Ffn {
    /// Where its input goes first.
    pub fn home(&self) -> Device {
        match *self {
            Ffn::Dense(device) | Ffn::Experts { shared: device, .. } => device,
        }
    }

    /// Where the routed experts live.
    pub fn routed(&self) -> Device {
        match *self {
            Ffn::Dense(device) | Ffn::Experts { routed: device, .. } => device,
        }
    }

    fn devices(&self) -> Vec<Device> {
        match *self {
            Ffn::Dense(device) => vec![device],
            Ffn::Experts { shared, routed, cached } => {
                [shared, routed].into_iter().chain(cached.map(|(device, _)| device)).collect()
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.pad("cpu"),
            Device::Cuda(index) => f.pad(&format!("cuda{index}")),
        }
    }
}

impl fmt::Display for Ffn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ffn::Dense(device) => write!(f, "{device}"),
            Ffn::Experts { shared, routed, cached: None } => write!(f, "shared {shared}, experts {routed}"),
            Ffn::Experts { shared, routed, cached: Some((device, slots)) } => {
                write!(f, "shared {shared}, experts {routed} ({slots} cached on {device})")
            }
        }
    }
}

/// A table with one row per run of equal layers.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10}{:<8}{:<8}ffn", "layers", "mixer", "kv")?;
        writeln!(f, "{:<10}{}", "embed", self.embed)?;
        let mut first = 0;
        for run in self.layers.chunk_by(|a, b| a == b) {
            let last = first + run.len() - 1;
            let range = if first == last { format!("{first}") } else { format!("{first}-{last}") };
            let LayerPlace { mixer, kv, ffn } = run[0];
            writeln!(f, "{range:<10}{mixer:<8}{kv:<8}{ffn}")?;
            first += run.len();
        }
        write!(f, "{:<10}{}", "head", self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_row_per_run() {
        let mut placement = Placement::all_cpu(4);
        placement.head = Device::Cuda(0);
        placement.layers[3] = LayerPlace {
            mixer: Device::Cuda(0),
            kv: Device::Cuda(0),
            ffn: Ffn::Experts { shared: Device::Cuda(0), routed: Device::Cpu, cached: Some((Device::Cuda(1), 12)) },
        };
        let expected = "\
layers    mixer   kv      ffn
embed     cpu
0-2       cpu     cpu     cpu
3         cuda0   cuda0   shared cuda0, experts cpu (12 cached on cuda1)
head      cuda0";
        assert_eq!(placement.to_string(), expected);
        assert_eq!(placement.devices(), [Device::Cpu, Device::Cuda(0), Device::Cuda(1)]);
    }

    #[test]
    fn a_cache_apart_from_its_mixer_is_refused_by_name() {
        let mut placement = Placement::all_cpu(2);
        placement.layers[1].kv = Device::Cuda(3);
        let error = placement.check(2).unwrap_err();
        assert!(matches!(error, EngineError::CacheApart { layer: 1, mixer: Device::Cpu, kv: Device::Cuda(3) }));
        assert!(error.to_string().contains("cuda3"), "{error}");
        placement.layers[1].mixer = Device::Cuda(3);
        placement.layers[0].ffn = Ffn::Dense(Device::Cuda(2));
        assert!(placement.check(2).is_ok());
        let cached = Some((Device::Cuda(2), 3));
        placement.layers[0].ffn = Ffn::Experts { shared: Device::Cpu, routed: Device::Cpu, cached };
        assert!(placement.check(2).is_ok());
        placement.layers[0].ffn = Ffn::Experts { shared: Device::Cpu, routed: Device::Cuda(1), cached };
        let error = placement.check(2).unwrap_err();
        assert!(
            matches!(error, EngineError::ExpertCopies { layer: 0, routed: Device::Cuda(1), device: Device::Cuda(2) }),
            "{error}"
        );
    }

    #[test]
    fn a_placement_for_another_model_is_refused() {
        let error = Placement::all_cpu(2).check(3).unwrap_err();
        assert!(matches!(error, EngineError::PlacementLayers { expected: 3, got: 2 }));
    }

    #[test]
    fn budgets_hold_caches_checkpoints_and_buffers() {
        let placement = Placement::all_cpu(2);
        let footprint =
            Footprint { kv_bytes: vec![10, 10], checkpoint_bytes: 3, buffer_bytes: 5, ..Footprint::default() };
        let budget = |bytes| [Budget { device: Device::Cpu, bytes }];
        assert!(placement.check_budgets(&footprint, &budget(28)).is_ok());
        assert!(placement.check_budgets(&footprint, &[Budget { device: Device::Cuda(0), bytes: 0 }]).is_ok());
        let error = placement.check_budgets(&footprint, &budget(27)).unwrap_err();
        assert!(matches!(error, EngineError::DoesNotFit { needed_bytes: 28, available_bytes: 27, .. }));
    }

    #[test]
    fn a_card_holds_its_weights_caches_and_buffers() {
        let gpu = Device::Cuda(0);
        let mut placement = Placement::all_cpu(2);
        (placement.layers[1].mixer, placement.layers[1].kv) = (gpu, gpu);
        let footprint =
            Footprint { weight_bytes: vec![(gpu, 100)], kv_bytes: vec![10, 20], checkpoint_bytes: 3, buffer_bytes: 5 };
        assert_eq!(placement.parts(&footprint, gpu), [100, 20, 5, 0]);
        assert_eq!(placement.parts(&footprint, Device::Cpu), [0, 10, 5, 3]);
        let error = placement.check_budgets(&footprint, &[Budget { device: gpu, bytes: 124 }]).unwrap_err();
        assert!(matches!(error, EngineError::DoesNotFit { needed_bytes: 125, .. }), "{error}");
    }

    #[test]
    fn the_last_layers_go_first_and_the_head_last() {
        let gpu = Device::Cuda(0);
        let on_gpu = |n| {
            let placement = Placement::last_layers_on(gpu, 3, n, Device::Cpu);
            let mixers: Vec<bool> = placement.layers.iter().map(|layer| layer.mixer == gpu).collect();
            assert!(placement.layers.iter().all(|layer| layer.ffn.routed() == Device::Cpu && layer.kv == layer.mixer));
            (mixers, placement.head == gpu)
        };
        assert_eq!(on_gpu(0), (vec![false; 3], false));
        assert_eq!(on_gpu(2), (vec![false, true, true], false));
        assert_eq!(on_gpu(3), (vec![true; 3], false));
        assert_eq!(on_gpu(99), (vec![true; 3], true));
    }

    #[test]
    fn devices_follow_each_other_and_the_last_has_the_head() {
        let [a, b] = [Device::Cuda(0), Device::Cuda(1)];
        let placement = Placement::layers_over(&[(a, 1), (b, 2)], 4, |_| Device::Cpu);
        let mixers: Vec<Device> = placement.layers.iter().map(|layer| layer.mixer).collect();
        assert_eq!((mixers, placement.head), (vec![Device::Cpu, a, b, b], b));
    }

    #[test]
    fn tensors_go_where_their_part_goes() {
        let [a, b, c] = [Device::Cuda(0), Device::Cuda(1), Device::Cuda(2)];
        let mut placement = Placement::all_cpu(2);
        let ffn = Ffn::Experts { shared: b, routed: c, cached: None };
        placement.layers[1] = LayerPlace { mixer: a, kv: a, ffn };
        for (tensor, device) in [
            ("token_embd.weight", Device::Cpu),
            ("output_norm.weight", Device::Cpu),
            ("blk.0.attn_q.weight", Device::Cpu),
            ("blk.1.attn_q.weight", a),
            ("blk.1.ssm_out.weight", a),
            ("blk.1.ffn_gate_inp.weight", b),
            ("blk.1.ffn_up_shexp.weight", b),
            ("blk.1.ffn_up_exps.weight", c),
            ("blk.1.ffn_up.3.weight", c),
        ] {
            assert_eq!(placement.device_of(tensor), device, "{tensor}");
        }
    }
}
