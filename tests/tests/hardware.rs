//! The search for graphics cards, against a fake NVML library that is loaded as the real one is.
use std::path::Path;

use tandem_core::hardware::{ProbeOptions, Prober};
use tandem_core::wire::{Gpu, GpuProbe};
use tandem_tests::nvml::FakeNvml;

const GIB: u64 = 1 << 30;

/// `nvmlReturn_t`. Source: `nvml.h`.
const DRIVER_NOT_LOADED: u32 = 9;
const GPU_IS_LOST: u32 = 15;
const LIB_RM_VERSION_MISMATCH: u32 = 18;

fn prober(fake: &FakeNvml) -> Prober {
    Prober::new(ProbeOptions { nvml_path: Some(fake.path().to_path_buf()) })
}

fn cards(prober: &Prober) -> (Vec<Gpu>, GpuProbe) {
    let hardware = prober.hardware(Path::new("."));
    (hardware.gpus, hardware.gpu_probe)
}

fn names(gpus: &[Gpu]) -> Vec<&str> {
    gpus.iter().map(|gpu| gpu.name.as_str()).collect()
}

fn failure(probe: GpuProbe) -> String {
    match probe {
        GpuProbe::Failed { reason } => reason,
        other => panic!("{other:?} is no failure"),
    }
}

#[test]
fn one_card_of_6_gib_tells_everything() {
    let fake =
        FakeNvml::new("driver 535.288.01\ncard 6 GiB free 5.5 GiB load 12 temperature 48 name GeForce RTX 2060\n")
            .unwrap();
    let (gpus, probe) = cards(&prober(&fake));
    assert_eq!(probe, GpuProbe::Found);
    let expected = Gpu {
        index: 0,
        name: "GeForce RTX 2060".into(),
        vram_total_bytes: 6 * GIB,
        vram_free_bytes: 11 * GIB / 2,
        driver: "535.288.01".into(),
        load_percent: Some(12),
        temperature_c: Some(48),
        unusable: gpus[0].unusable.clone(),
    };
    assert_eq!(gpus, [expected]);
    assert!(gpus[0].unusable.is_some(), "no CUDA driver knows this card");
}

#[test]
fn two_cards_keep_their_order_and_may_be_silent_about_load() {
    let fake = FakeNvml::new("card 16 GiB name A\ncard 24 GiB free 1 GiB temperature 70 name B\n").unwrap();
    let (gpus, _) = cards(&prober(&fake));
    assert_eq!(names(&gpus), ["A", "B"]);
    assert_eq!((gpus[1].index, gpus[1].vram_free_bytes), (1, GIB));
    assert_eq!((gpus[0].load_percent, gpus[1].temperature_c), (None, Some(70)));
}

#[test]
fn a_driver_without_cards_is_no_device() {
    let fake = FakeNvml::new("driver 580.1\n").unwrap();
    assert_eq!(cards(&prober(&fake)), (vec![], GpuProbe::NoDevice));
}

#[test]
fn init_errors_are_told_in_the_drivers_words() {
    for (code, words) in [(DRIVER_NOT_LOADED, "not loaded"), (LIB_RM_VERSION_MISMATCH, "mismatch"), (777, "777")] {
        let fake = FakeNvml::new(&format!("card 6 GiB\nfail nvmlInit_v2 {code}\n")).unwrap();
        let (gpus, probe) = cards(&prober(&fake));
        assert_eq!(gpus, []);
        let reason = failure(probe);
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn a_fault_of_any_needed_call_is_a_failure() {
    for call in [
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo_v2",
    ] {
        let fake = FakeNvml::new(&format!("card 6 GiB\nfail {call} {GPU_IS_LOST}\n")).unwrap();
        let (gpus, probe) = cards(&prober(&fake));
        assert_eq!(gpus, [], "{call}");
        assert!(failure(probe).contains("bus"), "{call}");
    }
}

#[test]
fn a_lost_card_does_not_hide_its_neighbour() {
    let settings = "card 16 GiB name A\ncard 24 GiB name B\nfail nvmlDeviceGetMemoryInfo_v2 15 card 0\n";
    let fake = FakeNvml::new(settings).unwrap();
    let (gpus, probe) = cards(&prober(&fake));
    assert_eq!((names(&gpus), probe), (vec!["B"], GpuProbe::Found));
}

#[test]
fn a_card_lost_in_mid_run_is_a_failure_and_comes_back() {
    let fake = FakeNvml::new("card 6 GiB free 5 GiB name A\n").unwrap();
    let prober = prober(&fake);
    assert_eq!(prober.gauges().gpus[0].vram_free_bytes, 5 * GIB);
    fake.set("card 6 GiB free 2 GiB name A\n").unwrap();
    assert_eq!(prober.gauges().gpus[0].vram_free_bytes, 2 * GIB);
    fake.set("card 6 GiB\nfail nvmlDeviceGetMemoryInfo_v2 15\n").unwrap();
    let lost = prober.gauges();
    assert_eq!(lost.gpus, []);
    assert!(failure(lost.gpu_probe).contains("bus"));
    fake.set("card 6 GiB free 3 GiB name A\n").unwrap();
    let back = prober.gauges();
    assert_eq!((names(&back.gpus), back.gpu_probe), (vec!["A"], GpuProbe::Found));
}

#[test]
fn more_free_than_total_is_not_believed() {
    let fake = FakeNvml::new("card 6 GiB free 9 GiB name A\n").unwrap();
    assert_eq!(cards(&prober(&fake)).0[0].vram_free_bytes, 6 * GIB);
}

#[test]
fn a_missing_driver_is_looked_for_again_when_asked() {
    let fake = FakeNvml::new("card 6 GiB name A\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libnvidia-ml.so.1");
    let prober = Prober::new(ProbeOptions { nvml_path: Some(path.clone()) });
    assert_eq!(cards(&prober), (vec![], GpuProbe::NoDriver));
    std::fs::copy(fake.path(), &path).unwrap();
    assert_eq!(prober.gauges().gpu_probe, GpuProbe::NoDriver);
    assert_eq!(cards(&prober).1, GpuProbe::Found);
}
