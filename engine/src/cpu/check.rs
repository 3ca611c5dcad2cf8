//! What the tests of plain operations share: inputs that look random, every ISA side by side, an f64 result to compare with.
use super::{Cpu, ISAS, Isa};

/// The ISAs to test; says loudly which this CPU cannot run. `TANDEM_ISA` names one, for emulators, which have no time for all.
pub(super) fn isas() -> Vec<Isa> {
    if let Ok(name) = std::env::var("TANDEM_ISA") {
        let isa: Isa = name.parse().unwrap();
        assert!(isa.is_present(), "this CPU has no {isa}");
        return vec![isa];
    }
    for isa in ISAS.into_iter().filter(|isa| !isa.is_present()) {
        eprintln!("SKIPPED: this CPU has no {isa}; its kernels are compiled but not run");
    }
    Isa::present()
}

pub(super) fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin() * 3.0).collect()
}

/// Runs `f` on every ISA, on one and on several threads; all must give the same bits.
pub(super) fn on_all(f: impl Fn(&Cpu) -> Vec<f32>) -> Vec<f32> {
    let want = f(&Cpu::new(Isa::Scalar, 1).unwrap());
    for isa in isas() {
        for n_threads in [1, 3] {
            let got = f(&Cpu::new(isa, n_threads).unwrap());
            assert!(got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa} {n_threads}");
        }
    }
    want
}

/// Runs `f` on every ISA, on one and on several threads, with a name for messages; for operations whose bits differ.
pub(super) fn on_each(mut f: impl FnMut(&Cpu, &str)) {
    for isa in isas() {
        for n_threads in [1, 3] {
            f(&Cpu::new(isa, n_threads).unwrap(), &format!("{isa}, {n_threads} threads"));
        }
    }
}

/// Differences relative to the largest value: terms of a sum may cancel.
pub(super) fn assert_near(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(1e-9f64, |max, w| max.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= tolerance * largest, "{what}, {i}: {g} {w}, largest {largest}");
    }
}

pub(super) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

pub(super) fn assert_close(got: &[f32], want: impl Iterator<Item = f64>, tolerance: f64) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= tolerance * w.abs().max(1e-3), "{i}: {g} {w}");
    }
}

pub(super) const SIZES: [(usize, usize); 6] = [(1, 1), (3, 7), (1, 16), (5, 33), (2, 576), (70, 1536)];
