//! Where the parts of a model live: plain data that the planner builds, that is checked again at load and that the layer
//! loop obeys. Nothing here decides anything; it says, checks and prints.

use std::fmt;

use crate::error::EngineError;

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
        /// A second device that keeps copies of the experts used most, and how many.
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
    /// Caches, one figure per layer.
    pub kv_bytes: Vec<u64>,
    /// Checkpoints of the caches; they live in main memory.
    pub checkpoint_bytes: u64,
    /// Buffers of the forward pass; they live where the mixers do.
    pub buffer_bytes: u64,
}

impl Placement {
    /// Everything on the processor, with dense feed-forward halves.
    pub fn all_cpu(n_layers: usize) -> Self {
        let layer = LayerPlace { mixer: Device::Cpu, kv: Device::Cpu, ffn: Ffn::Dense(Device::Cpu) };
        Self { embed: Device::Cpu, layers: vec![layer; n_layers], head: Device::Cpu }
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

    /// Refuses a placement that does not match a model of `n_layers`, or names a device this engine does not drive.
    pub fn check(&self, n_layers: usize) -> Result<(), EngineError> {
        if self.layers.len() != n_layers {
            return Err(EngineError::PlacementLayers { expected: n_layers, got: self.layers.len() });
        }
        match self.devices().into_iter().find(|&device| device != Device::Cpu) {
            Some(device) => Err(EngineError::DeviceUnsupported { device }),
            None => Ok(()),
        }
    }

    /// Refuses a placement that needs more than a budget gives. A device without a budget is not checked.
    pub fn check_budgets(&self, footprint: &Footprint, budgets: &[Budget]) -> Result<(), EngineError> {
        for &Budget { device, bytes: available_bytes } in budgets {
            let kv = self.layers.iter().zip(&footprint.kv_bytes).filter(|(layer, _)| layer.kv == device);
            let kv_bytes = kv.fold(0u64, |sum, (_, &bytes)| sum.saturating_add(bytes));
            let has_mixer = self.layers.iter().any(|layer| layer.mixer == device);
            let parts = [
                kv_bytes,
                if has_mixer { footprint.buffer_bytes } else { 0 },
                if device == Device::Cpu { footprint.checkpoint_bytes } else { 0 },
            ];
            let needed_bytes = parts.into_iter().fold(0, u64::saturating_add);
            if needed_bytes > available_bytes {
                return Err(EngineError::DoesNotFit { device, needed_bytes, available_bytes });
            }
        }
        Ok(())
    }
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
    fn a_gpu_is_refused_by_name_wherever_it_stands() {
        for part in 0..5 {
            let mut placement = Placement::all_cpu(2);
            let gpu = Device::Cuda(3);
            match part {
                0 => placement.embed = gpu,
                1 => placement.head = gpu,
                2 => placement.layers[1].mixer = gpu,
                3 => placement.layers[1].kv = gpu,
                _ => placement.layers[1].ffn = Ffn::Dense(gpu),
            }
            let error = placement.check(2).unwrap_err();
            assert!(matches!(error, EngineError::DeviceUnsupported { device: Device::Cuda(3) }));
            assert!(error.to_string().contains("cuda3"), "{error}");
        }
        assert!(Placement::all_cpu(2).check(2).is_ok());
    }

    #[test]
    fn a_placement_for_another_model_is_refused() {
        let error = Placement::all_cpu(2).check(3).unwrap_err();
        assert!(matches!(error, EngineError::PlacementLayers { expected: 3, got: 2 }));
    }

    #[test]
    fn budgets_hold_caches_checkpoints_and_buffers() {
        let placement = Placement::all_cpu(2);
        let footprint = Footprint { kv_bytes: vec![10, 10], checkpoint_bytes: 3, buffer_bytes: 5 };
        let budget = |bytes| [Budget { device: Device::Cpu, bytes }];
        assert!(placement.check_budgets(&footprint, &budget(28)).is_ok());
        assert!(placement.check_budgets(&footprint, &[Budget { device: Device::Cuda(0), bytes: 0 }]).is_ok());
        let error = placement.check_budgets(&footprint, &budget(27)).unwrap_err();
        assert!(matches!(error, EngineError::DoesNotFit { needed_bytes: 28, available_bytes: 27, .. }));
    }
}
