//! Which cards compute: what the CUDA driver says of those that the management library lists, and what went wrong on them since
//! the app was started.
use std::collections::BTreeMap;

use tandem_engine::cuda::{CudaDevice, CudaError, DriverState, probe};

use crate::error::Explain;
use crate::wire::{Gpu, Text};

/// What is known of the driver.
#[derive(Debug, Default)]
pub(super) struct Fitness {
    /// As it was when somebody looked last.
    driver: Option<DriverState>,
    /// By the driver's index.
    spoiled: BTreeMap<u32, Text>,
}

impl Fitness {
    /// Asks the driver again: milliseconds, and no memory of a card.
    pub(super) fn look(&mut self) {
        let driver = Some(probe());
        if driver != self.driver {
            tracing::info!(?driver, "the CUDA driver");
            self.driver = driver;
        }
    }

    /// A card is not to be used any more.
    pub(super) fn spoil(&mut self, index: u32, why: Text) {
        tracing::warn!(index, why = why.en, "a graphics card is not used from now on");
        self.spoiled.insert(index, why);
    }

    /// Says of each card whether it computes, and gives it the driver's index: the two libraries count differently.
    pub(super) fn mark(&mut self, gpus: &mut [Gpu]) {
        if self.driver.is_none() && !gpus.is_empty() {
            self.look();
        }
        let driver = self.driver.as_ref().unwrap_or(&DriverState::NoDriver);
        let devices: &[CudaDevice] = if let DriverState::Ready { devices } = driver { devices } else { &[] };
        let mut n_unknown = 0;
        for i in 0..gpus.len() {
            let n_before = gpus[..i].iter().filter(|gpu| gpu.name == gpus[i].name).count();
            let device = devices.iter().filter(|device| device.name == gpus[i].name).nth(n_before);
            let gpu = &mut gpus[i];
            gpu.index = device.map_or(devices.len() as u32 + n_unknown, |device| device.index);
            n_unknown += u32::from(device.is_none());
            gpu.unusable = match device {
                Some(device) if !device.is_supported() => Some(too_old(device)),
                Some(device) => self.spoiled.get(&device.index).cloned(),
                None if *driver == DriverState::NoDriver => Some(no_cuda()),
                None => Some(CudaError::Unavailable { index: gpu.index, state: driver.clone() }.explain().message),
            };
        }
    }
}

fn too_old(device: &CudaDevice) -> Text {
    CudaError::CardTooOld { index: device.index, name: device.name.clone() }.explain().message
}

/// The management library has just told of cards: a driver there is.
fn no_cuda() -> Text {
    Text::new(
        "the part of the NVIDIA driver that computes (CUDA) is not installed",
        "未安装 NVIDIA 驱动的计算部分（CUDA）",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, name: &str) -> Gpu {
        Gpu {
            index,
            name: name.to_owned(),
            vram_total_bytes: 6 << 30,
            vram_free_bytes: 5 << 30,
            driver: String::new(),
            load_percent: None,
            temperature_c: None,
            unusable: None,
        }
    }

    fn device(index: u32, name: &str, capability: (u32, u32)) -> CudaDevice {
        CudaDevice { index, name: name.to_owned(), capability, memory_bytes: 6 << 30 }
    }

    fn marked(driver: DriverState, mut gpus: Vec<Gpu>) -> Vec<(u32, Option<String>)> {
        Fitness { driver: Some(driver), ..Fitness::default() }.mark(&mut gpus);
        gpus.into_iter().map(|gpu| (gpu.index, gpu.unusable.map(|text| text.en))).collect()
    }

    /// The driver puts the fastest first, the management library goes by slots.
    #[test]
    fn cards_are_found_by_name_in_the_drivers_own_order() {
        let devices = vec![device(0, "B", (8, 6)), device(1, "A", (7, 5)), device(2, "B", (8, 6))];
        let gpus = vec![gpu(0, "A"), gpu(1, "B"), gpu(2, "B"), gpu(3, "hidden")];
        let found = marked(DriverState::Ready { devices }, gpus);
        let indices: Vec<u32> = found.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [1, 0, 2, 3]);
        assert!(found[..3].iter().all(|(_, unusable)| unusable.is_none()) && found[3].1.is_some());
    }

    #[test]
    fn every_state_of_the_driver_is_a_reason() {
        let reason = |driver| marked(driver, vec![gpu(0, "A")]).remove(0).1.unwrap_or_default();
        assert!(reason(DriverState::NoDriver).contains("(CUDA) is not installed"));
        assert!(reason(DriverState::DriverTooOld { version: 11_080 }).contains("too old"));
        assert!(reason(DriverState::NoDevice).contains("sees no graphics card"));
        assert!(reason(DriverState::Failed { reason: "broken".into() }).contains("broken"));
        let old = DriverState::Ready { devices: vec![device(0, "A", (6, 1))] };
        assert!(reason(old).contains("too old to compute"));
    }

    #[test]
    fn what_failed_is_not_used_again() {
        let driver = DriverState::Ready { devices: vec![device(0, "A", (7, 5))] };
        let mut fitness = Fitness { driver: Some(driver), ..Fitness::default() };
        fitness.spoil(0, Text::new("it is gone", "已断开"));
        let mut gpus = [gpu(0, "A")];
        fitness.mark(&mut gpus);
        assert_eq!(gpus[0].unusable, Some(Text::new("it is gone", "已断开")));
    }
}
