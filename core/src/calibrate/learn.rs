//! What answers teach: each is put beside what was predicted for it, and the typical error of a kind of model corrects the next
//! predictions. Medians, so that one answer on a busy machine moves little; bounded, so that no fault can run away.

use std::collections::BTreeMap;

use tandem_engine::worker::GenerateStats;

use crate::hardware::Prober;
use crate::plan::Forecast;
use crate::store::{Store, StoreError, now_ms};
use crate::wire::{Correction, Measured, Outcome};

/// Answers of a kind of model of which the median counts.
const N_LATEST: usize = 15;
/// No correction goes beyond this factor, either way.
const MOST: f64 = 3.0;
/// Shorter answers and prompts measure nothing but chance.
const MIN_GENERATED_TOKENS: usize = 16;
const MIN_PROMPT_TOKENS: u32 = 32;
/// One answer counts five parts in six, three count fifteen in sixteen.
const DOUBT: f64 = 0.2;

/// An answer of a loaded model.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// What was predicted for it.
    pub forecast: &'a Forecast,
    /// The machine, as the benchmark names it.
    pub machine: &'a str,
    /// Whether the forecast came from measured rates.
    pub is_measured: bool,
    /// Compute threads.
    pub n_threads: u32,
    /// What it cost.
    pub stats: &'a GenerateStats,
}

/// Puts an answer beside its prediction; `None` if it was too short to tell anything.
pub fn outcome(answered: &Answered<'_>) -> Option<Outcome> {
    let Answered { model, forecast, machine, is_measured, n_threads, stats } = *answered;
    let tokens_per_s = stats.generation_tokens_per_s();
    if stats.n_generated < MIN_GENERATED_TOKENS || tokens_per_s <= 0.0 {
        return None;
    }
    let n_prompt_tokens = stats.n_prompt.saturating_sub(stats.n_reused) as u32;
    let n_context_tokens = (stats.n_prompt + stats.n_generated / 2) as u32;
    let has_prompt = n_prompt_tokens >= MIN_PROMPT_TOKENS;
    Some(Outcome {
        at_ms: now_ms(),
        model: model.to_owned(),
        class: forecast.class.clone(),
        machine: machine.to_owned(),
        is_measured,
        n_threads,
        n_context_tokens,
        predicted_tokens_per_s: 1.0 / forecast.token_s(n_context_tokens),
        uncorrected_tokens_per_s: 1.0 / forecast.uncorrected_token_s(n_context_tokens),
        tokens_per_s,
        n_prompt_tokens,
        predicted_prompt_tokens_per_s: 1.0 / forecast.prompt_token_s(n_prompt_tokens),
        uncorrected_prompt_tokens_per_s: 1.0 / forecast.uncorrected_prompt_token_s(n_prompt_tokens),
        prompt_tokens_per_s: if has_prompt { stats.prompt_tokens_per_s() } else { 0.0 },
    })
}

/// Keeps an answer and lets plans know what it taught.
pub fn learn(store: &Store, prober: &Prober, outcome: &Outcome) -> Result<(), StoreError> {
    tracing::info!(
        model = outcome.model,
        predicted = outcome.predicted_tokens_per_s,
        measured = outcome.tokens_per_s,
        "tokens per second"
    );
    store.add_outcome(outcome)?;
    prober.set_measured(measured(store, &outcome.machine)?);
    Ok(())
}

/// What is known of a machine: the benchmark, if it is of this machine, and what answers taught on the same footing.
pub fn measured(store: &Store, machine: &str) -> Result<Measured, StoreError> {
    let rates = store.machine_rates()?.filter(|rates| rates.machine == machine);
    let outcomes = store.outcomes()?;
    let corrections = corrections(&outcomes, machine, rates.is_some());
    Ok(Measured { rates, corrections })
}

/// The typical error by kind of model, and behind an empty name that of all kinds.
///
/// outcomes     latest first
/// is_measured  which predictions to correct: those from measured rates, or those from assumptions
pub fn corrections(outcomes: &[Outcome], machine: &str, is_measured: bool) -> Vec<Correction> {
    let mut classes: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.machine == machine && outcome.is_measured == is_measured) {
        let class = classes.entry(&outcome.class).or_default();
        if class.len() < N_LATEST {
            class.push(outcome);
        }
    }
    let mut corrections: Vec<Correction> =
        classes.iter().map(|(class, outcomes)| Correction::of(class, outcomes)).collect();
    if !corrections.is_empty() {
        let all = |of: fn(&Correction) -> f64| believed(corrections.iter().map(of).collect());
        let any = Correction {
            class: String::new(),
            generation: all(|class| class.generation),
            prompt: all(|class| class.prompt),
            n_runs: corrections.iter().map(|class| class.n_runs).sum(),
        };
        corrections.insert(0, any);
    }
    corrections
}

impl Correction {
    fn of(class: &str, outcomes: &[&Outcome]) -> Self {
        let factors = |predicted: fn(&Outcome) -> f64, actual: fn(&Outcome) -> f64| {
            let factor = |outcome: &&Outcome| predicted(outcome) / actual(outcome);
            believed(outcomes.iter().map(factor).filter(|factor| factor.is_finite() && *factor > 0.0).collect())
        };
        Self {
            class: class.to_owned(),
            generation: factors(|o| o.uncorrected_tokens_per_s, |o| o.tokens_per_s),
            prompt: factors(|o| o.uncorrected_prompt_tokens_per_s, |o| o.prompt_tokens_per_s),
            n_runs: outcomes.len() as u32,
        }
    }
}

/// The median of factors, drawn towards 1 the fewer there are; 1 if there are none.
fn believed(mut factors: Vec<f64>) -> f64 {
    factors.sort_by(f64::total_cmp);
    let n = factors.len();
    let median = match n {
        0 => return 1.0,
        _ if n.is_multiple_of(2) => (factors[n / 2 - 1] * factors[n / 2]).sqrt(),
        _ => factors[n / 2],
    };
    let n = n as f64;
    (median.ln() * n / (n + DOUBT)).exp().clamp(1.0 / MOST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(class: &str, uncorrected: f64, actual: f64) -> Outcome {
        Outcome {
            class: class.into(),
            machine: "m".into(),
            is_measured: true,
            uncorrected_tokens_per_s: uncorrected,
            tokens_per_s: actual,
            ..Outcome::default()
        }
    }

    fn generation(outcomes: &[Outcome], class: &str) -> f64 {
        let corrections = corrections(outcomes, "m", true);
        corrections.iter().find(|correction| correction.class == class).map_or(1.0, |correction| correction.generation)
    }

    #[test]
    fn repeated_errors_are_corrected_and_a_single_one_mostly() {
        let slow = outcome("a", 20.0, 10.0);
        assert!((1.7..1.85).contains(&generation(std::slice::from_ref(&slow), "a")));
        assert!((1.9..2.0).contains(&generation(&vec![slow; 15], "a")));
    }

    #[test]
    fn one_answer_on_a_busy_machine_moves_little() {
        let mut outcomes = vec![outcome("a", 10.0, 10.0); 8];
        outcomes.insert(0, outcome("a", 10.0, 0.5));
        assert_eq!(generation(&outcomes, "a"), 1.0);
    }

    #[test]
    fn no_fault_runs_away() {
        for actual in [1e-9, 1e9, 0.0, f64::NAN, f64::INFINITY] {
            let factor = generation(&vec![outcome("a", 10.0, actual); 15], "a");
            assert!((1.0 / MOST..=MOST).contains(&factor), "{actual}: {factor}");
        }
    }

    #[test]
    fn kinds_of_models_teach_each_other_little_and_other_machines_nothing() {
        let mut outcomes = vec![outcome("a", 20.0, 10.0); 15];
        assert!((1.7..1.85).contains(&generation(&outcomes, "")), "for kinds that never ran");
        outcomes.extend(vec![outcome("b", 10.0, 10.0); 15]);
        assert!((1.9..2.0).contains(&generation(&outcomes, "a")));
        assert_eq!(generation(&outcomes, "b"), 1.0);
        assert_eq!(corrections(&outcomes, "another", true), []);
        assert_eq!(corrections(&outcomes, "m", false), []);
    }
}
