//! The benchmark behind the window: it begins when nothing else computes, gives way to whatever does, can be skipped, and tells
//! how far it is.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;

use super::{CalibrateError, MeasureCard, Subject, benchmark, machine_name, measured};
use crate::error::Explain;
use crate::hardware::Prober;
use crate::store::Store;
use crate::wire::{CalibrationState, MachineRates, Predictions};

/// Between two looks whether the engine has become idle.
const PATIENCE: Duration = Duration::from_millis(200);

/// What the benchmark needs of the app.
pub struct Surroundings {
    /// Where figures are kept.
    pub store: Arc<Store>,
    /// Who hands them to plans.
    pub prober: Arc<Prober>,
    /// Where models lie, for the disk.
    pub models_dir: Box<dyn Fn() -> PathBuf + Send + Sync>,
    /// The device layer, if there is one that can measure cards.
    pub measure_card: Option<Box<MeasureCard>>,
    /// Whether nothing is loading or answering.
    pub is_idle: Box<dyn Fn() -> bool + Send + Sync>,
    /// Hears of every change.
    pub on_state: Box<dyn Fn(CalibrationState) + Send + Sync>,
}

/// The benchmark and its state.
pub struct Calibrator {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    surroundings: Surroundings,
    state: Mutex<CalibrationState>,
    is_skipped: AtomicBool,
}

impl Calibrator {
    /// Takes up what is known of this machine; measures nothing yet.
    pub fn new(surroundings: Surroundings) -> Self {
        let machine = surroundings.machine();
        let known = measured(&surroundings.store, &machine).unwrap_or_else(|error| {
            tracing::warn!(%error, "what is known of this machine's speed cannot be read");
            Default::default()
        });
        let state = known.rates.clone().map_or(CalibrationState::Absent, |rates| CalibrationState::Done { rates });
        surroundings.prober.set_measured(known);
        let shared = Shared { surroundings, state: Mutex::new(state), is_skipped: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// How far it is, or what it found.
    pub fn state(&self) -> CalibrationState {
        lock(&self.shared.state).clone()
    }

    /// The same, with what answers have taught.
    pub fn predictions(&self) -> Predictions {
        let Surroundings { store, prober, models_dir, .. } = &self.shared.surroundings;
        let outcomes = store.outcomes().unwrap_or_else(|error| {
            tracing::warn!(%error, "past answers cannot be read");
            Vec::new()
        });
        let corrections = prober.hardware(&models_dir()).measured.corrections;
        Predictions { calibration: self.state(), corrections, outcomes }
    }

    /// Begins as soon as nothing else computes, unless it is running already.
    pub fn begin(&self) -> Result<(), EngineError> {
        let mut thread = lock(&self.thread);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        self.shared.is_skipped.store(false, Ordering::Relaxed);
        self.shared.enter(CalibrationState::Running { progress: 0.0 });
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new().name("tandem-calibrate".to_owned()).spawn(move || shared.run());
        *thread = Some(spawned.map_err(EngineError::Thread)?);
        Ok(())
    }

    /// Stops it; what was known before still holds.
    pub fn skip(&self) {
        self.shared.is_skipped.store(true, Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            // A panic in there has been logged.
            let _ = thread.join();
        }
    }
}

impl Drop for Calibrator {
    fn drop(&mut self) {
        self.skip();
    }
}

impl Shared {
    fn run(&self) {
        let state = match self.measure() {
            Ok(rates) => CalibrationState::Done { rates },
            Err(CalibrateError::Cancelled) => self.known(),
            Err(error) => CalibrationState::Failed { failure: error.explain() },
        };
        self.enter(state);
    }

    /// Again and again, until nothing comes in between.
    fn measure(&self) -> Result<MachineRates, CalibrateError> {
        loop {
            self.wait_until_idle()?;
            match self.benchmark() {
                Err(CalibrateError::Cancelled) if !self.is_skipped() => {}
                ended => return ended,
            }
        }
    }

    fn benchmark(&self) -> Result<MachineRates, CalibrateError> {
        let Surroundings { store, prober, models_dir, measure_card, is_idle, .. } = &self.surroundings;
        let folder = models_dir();
        let hardware = prober.hardware(&folder);
        let subject =
            Subject { hardware: &hardware, folder: &folder, types: &[], measure_card: measure_card.as_deref() };
        let rates = benchmark(&subject, &mut |progress| {
            self.enter(CalibrationState::Running { progress });
            if self.is_skipped() || !is_idle() { Flow::Break } else { Flow::Continue }
        })?;
        let kept = store.set_machine_rates(&rates).and_then(|()| measured(store, &rates.machine));
        match kept {
            Ok(known) => prober.set_measured(known),
            Err(error) => tracing::warn!(%error, "the benchmark cannot be kept"),
        }
        Ok(rates)
    }

    fn wait_until_idle(&self) -> Result<(), CalibrateError> {
        while !self.is_skipped() {
            if (self.surroundings.is_idle)() {
                return Ok(());
            }
            std::thread::sleep(PATIENCE);
        }
        Err(CalibrateError::Cancelled)
    }

    fn known(&self) -> CalibrationState {
        let known = measured(&self.surroundings.store, &self.surroundings.machine());
        known
            .ok()
            .and_then(|known| known.rates)
            .map_or(CalibrationState::Absent, |rates| CalibrationState::Done { rates })
    }

    fn enter(&self, state: CalibrationState) {
        *lock(&self.state) = state.clone();
        (self.surroundings.on_state)(state);
    }

    fn is_skipped(&self) -> bool {
        self.is_skipped.load(Ordering::Relaxed)
    }
}

impl Surroundings {
    fn machine(&self) -> String {
        machine_name(&self.prober.hardware(&(self.models_dir)()))
    }
}

/// Plain values, set in one go.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::hardware::ProbeOptions;

    fn calibrator(is_idle: bool, on_state: Box<dyn Fn(CalibrationState) + Send + Sync>) -> Calibrator {
        Calibrator::new(Surroundings {
            store: Arc::new(Store::open(Path::new(":memory:")).unwrap().store),
            prober: Arc::new(Prober::new(ProbeOptions::default())),
            models_dir: Box::new(|| PathBuf::from(".")),
            measure_card: None,
            is_idle: Box::new(move || is_idle),
            on_state,
        })
    }

    #[test]
    fn it_waits_for_the_engine_and_can_be_skipped_meanwhile() {
        let calibrator = calibrator(false, Box::new(|_| {}));
        assert_eq!(calibrator.state(), CalibrationState::Absent);
        calibrator.begin().unwrap();
        assert_eq!(calibrator.state(), CalibrationState::Running { progress: 0.0 });
        calibrator.skip();
        assert_eq!(calibrator.state(), CalibrationState::Absent);
    }

    #[test]
    fn it_can_be_skipped_while_it_measures() {
        let (sender, states) = channel();
        let calibrator = calibrator(true, Box::new(move |state| drop(sender.send(state))));
        calibrator.begin().unwrap();
        let is_under_way =
            |state: &CalibrationState| matches!(state, CalibrationState::Running { progress } if *progress > 0.0);
        assert!(states.iter().any(|state| is_under_way(&state)));
        calibrator.skip();
        assert_eq!(states.try_iter().last(), Some(CalibrationState::Absent));
    }
}
