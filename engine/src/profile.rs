//! Where the time of forward passes goes: one row per operation, part of the model and kinds of weights. Off, which is the
//! rule, an operation pays one look at an empty option.
//!
//! Times are those of the thread that starts operations, so their sum is what a token takes but for what lies between
//! operations.
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::gguf::TensorType;

/// Part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Tokens to activations.
    Embed,
    /// The halves of layers that mix tokens.
    Mix,
    /// The halves of layers that look at each token alone.
    Ffn,
    /// Activations to logits.
    Head,
}

/// What an operation took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRow {
    /// Where in the model.
    pub stage: Stage,
    /// The operation.
    pub operation: &'static str,
    /// Types of the weights that it multiplies, sorted; empty where it has none.
    pub weights: Vec<TensorType>,
    /// How often it ran.
    pub n_calls: u64,
    /// Bytes of those weights, over all calls.
    pub n_bytes: u64,
    /// Time, over all calls.
    pub time: Duration,
}

/// Collects rows, if it is on.
#[derive(Default)]
pub(crate) struct Profile(Option<Mutex<Record>>);

struct Record {
    stage: Stage,
    rows: Vec<ProfileRow>,
}

impl Profile {
    /// One that collects.
    pub(crate) fn on() -> Self {
        Self(Some(Mutex::new(Record { stage: Stage::Embed, rows: Vec::new() })))
    }

    /// Says where the operations that follow belong.
    pub(crate) fn enter(&self, stage: Stage) {
        if let Some(record) = &self.0 {
            record.lock().unwrap_or_else(PoisonError::into_inner).stage = stage;
        }
    }

    /// Times an operation until the timer goes.
    pub(crate) fn time(&self, operation: &'static str) -> Option<Timer<'_>> {
        self.0.as_ref().map(|record| Timer::start(record, operation, Vec::new(), 0))
    }

    /// Times products until the timer goes; the matrices are looked at only if somebody wants to know.
    pub(crate) fn time_products<I: Iterator<Item = (TensorType, u64)>>(
        &self,
        operation: &'static str,
        matrices: impl FnOnce() -> I,
    ) -> Option<Timer<'_>> {
        let record = self.0.as_ref()?;
        let (mut weights, mut n_bytes) = (Vec::new(), 0);
        for (tensor_type, matrix_bytes) in matrices() {
            n_bytes += matrix_bytes;
            if !weights.contains(&tensor_type) {
                weights.push(tensor_type);
            }
        }
        weights.sort_unstable_by_key(|tensor_type| tensor_type.row().name);
        Some(Timer::start(record, operation, weights, n_bytes))
    }

    /// The rows so far, the longest first, and begins anew.
    pub(crate) fn take(&self) -> Vec<ProfileRow> {
        let Some(record) = &self.0 else { return Vec::new() };
        let mut rows = std::mem::take(&mut record.lock().unwrap_or_else(PoisonError::into_inner).rows);
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        rows
    }
}

/// Adds what passes during its life to a profile.
#[must_use]
pub(crate) struct Timer<'a> {
    record: &'a Mutex<Record>,
    operation: &'static str,
    weights: Vec<TensorType>,
    n_bytes: u64,
    start: Instant,
}

impl<'a> Timer<'a> {
    fn start(record: &'a Mutex<Record>, operation: &'static str, weights: Vec<TensorType>, n_bytes: u64) -> Self {
        Self { record, operation, weights, n_bytes, start: Instant::now() }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let time = self.start.elapsed();
        self.record.lock().unwrap_or_else(PoisonError::into_inner).add(
            self.operation,
            &mut self.weights,
            self.n_bytes,
            time,
        );
    }
}

impl Record {
    fn add(&mut self, operation: &'static str, weights: &mut Vec<TensorType>, n_bytes: u64, time: Duration) {
        let stage = self.stage;
        let is_same = |row: &&mut ProfileRow| {
            row.stage == stage && row.operation == operation && row.weights.as_slice() == weights.as_slice()
        };
        match self.rows.iter_mut().find(is_same) {
            Some(row) => {
                row.n_calls += 1;
                row.n_bytes += n_bytes;
                row.time += time;
            }
            None => {
                let weights = std::mem::take(weights);
                self.rows.push(ProfileRow { stage, operation, weights, n_calls: 1, n_bytes, time });
            }
        }
    }
}

impl Stage {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Embed => "embed",
            Stage::Mix => "mix",
            Stage::Ffn => "ffn",
            Stage::Head => "head",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_operations_of_a_stage_share_a_row() {
        let profile = Profile::on();
        for stage in [Stage::Mix, Stage::Ffn, Stage::Mix] {
            profile.enter(stage);
            drop(profile.time("norm"));
            let list = [(TensorType::Q8_0, 34), (TensorType::Q4_0, 18)];
            drop(profile.time_products("products", || list.into_iter()));
        }
        let mut rows = profile.take();
        rows.sort_by_key(|row| (row.stage.name(), row.operation));
        let seen: Vec<_> =
            rows.iter().map(|row| (row.stage, row.operation, row.weights.len(), row.n_calls, row.n_bytes)).collect();
        assert_eq!(
            seen,
            [
                (Stage::Ffn, "norm", 0, 1, 0),
                (Stage::Ffn, "products", 2, 1, 52),
                (Stage::Mix, "norm", 0, 2, 0),
                (Stage::Mix, "products", 2, 2, 104)
            ]
        );
        assert_eq!(profile.take(), []);
    }

    #[test]
    fn off_it_looks_at_nothing() {
        let profile = Profile::default();
        let timer =
            profile.time_products("products", || -> std::iter::Empty<(TensorType, u64)> { unreachable!("it is off") });
        assert!(timer.is_none() && profile.time("norm").is_none() && profile.take().is_empty());
    }
}
