//! From logits to a token. The chain is llama.cpp's: penalties, top-k, top-p, min-p, temperature, draw. So top-p and min-p see
//! the distribution *before* temperature. Temperature 0 takes the most likely token and draws nothing.

use crate::error::EngineError;

/// Settings of the chain; the default is greedy, with nothing else switched on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerSettings {
    /// Divides the logits; 0 or less is greedy.
    pub temperature: f32,
    /// Keeps the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens that together reach this probability, one at least; 1 or more keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely, relative to the most likely one; 0 or less keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 does nothing.
    pub repeat_penalty: f32,
    /// Taken off the logit of every recent token; 0 does nothing.
    pub presence_penalty: f32,
    /// Taken off the logit of a recent token for each time it occurs; 0 does nothing.
    pub frequency_penalty: f32,
    /// How many of the last tokens are recent; 0 switches the penalties off.
    pub penalty_last_n: usize,
    /// Start of the random numbers: same seed, same logits, same tokens.
    pub seed: u64,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            seed: 0,
        }
    }
}

/// The chain, with its random numbers and its buffers.
#[derive(Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    random: SplitMix64,
    candidates: Vec<Candidate>,
    recent: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
}

impl Sampler {
    /// A chain at the start of its random numbers.
    pub fn new(settings: SamplerSettings) -> Self {
        Self { settings, random: SplitMix64(settings.seed), candidates: Vec::new(), recent: Vec::new() }
    }

    /// Picks the next token.
    ///
    /// logits   [n_vocab], changed in place by the penalties; minus infinity bars a token
    /// history  all tokens so far; the penalties look at the last `penalty_last_n`
    /// Errors   a logit that is NaN or plus infinity, or no token left
    /// Cost     O(n_vocab + k log k) for the k tokens kept
    pub fn sample(&mut self, logits: &mut [f32], history: &[u32]) -> Result<u32, EngineError> {
        let is_bad = |logit: &f32| logit.is_nan() || *logit == f32::INFINITY;
        if let Some(token) = logits.iter().position(is_bad) {
            return Err(EngineError::LogitsNotFinite { token: token as u32 });
        }
        self.penalize(logits, history);
        let best = argmax(logits).ok_or(EngineError::LogitsNotFinite { token: 0 })?;
        if self.settings.temperature <= 0.0 {
            return Ok(best);
        }
        self.candidates.clear();
        let possible = logits.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        self.candidates.extend(possible.map(|(id, &logit)| Candidate { id: id as u32, logit }));
        let max = logits[best as usize];
        self.keep_top_k();
        self.keep_top_p(max);
        self.keep_min_p(max);
        Ok(self.draw(max))
    }

    fn penalize(&mut self, logits: &mut [f32], history: &[u32]) {
        let SamplerSettings { repeat_penalty, presence_penalty, frequency_penalty, penalty_last_n, .. } = self.settings;
        if repeat_penalty == 1.0 && presence_penalty == 0.0 && frequency_penalty == 0.0 {
            return;
        }
        self.recent.clear();
        self.recent.extend(&history[history.len().saturating_sub(penalty_last_n)..]);
        self.recent.sort_unstable();
        for run in self.recent.chunk_by(|a, b| a == b) {
            let Some(logit) = logits.get_mut(run[0] as usize) else { continue };
            *logit = if *logit <= 0.0 { *logit * repeat_penalty } else { *logit / repeat_penalty };
            *logit -= run.len() as f32 * frequency_penalty + presence_penalty;
        }
    }

    fn keep_top_k(&mut self) {
        let k = self.settings.top_k;
        if k > 0 && k < self.candidates.len() {
            sort_first(&mut self.candidates, k);
            self.candidates.truncate(k);
        }
    }

    /// Sorts only as many candidates as it takes to reach the probability.
    fn keep_top_p(&mut self, max: f32) {
        let top_p = self.settings.top_p;
        if top_p >= 1.0 {
            return;
        }
        let total: f32 = self.candidates.iter().map(|c| (c.logit - max).exp()).sum();
        let mut n_sorted = 0;
        let mut sum = 0.0;
        let mut kept = 0;
        while kept < self.candidates.len() {
            if kept == n_sorted {
                let more = (n_sorted * 2).max(64).min(self.candidates.len());
                sort_first(&mut self.candidates[n_sorted..], more - n_sorted);
                n_sorted = more;
            }
            sum += (self.candidates[kept].logit - max).exp() / total;
            kept += 1;
            if sum >= top_p {
                break;
            }
        }
        self.candidates.truncate(kept);
    }

    fn keep_min_p(&mut self, max: f32) {
        let min_p = self.settings.min_p;
        if min_p > 0.0 {
            let least = max + min_p.min(1.0).ln();
            self.candidates.retain(|c| c.logit >= least);
        }
    }

    fn draw(&mut self, max: f32) -> u32 {
        let temperature = self.settings.temperature;
        let weight = |c: &Candidate| ((c.logit - max) / temperature).exp();
        let total: f32 = self.candidates.iter().map(weight).sum();
        let mut left = self.random.unit() * total;
        let mut last = 0;
        for candidate in &self.candidates {
            let weight = weight(candidate);
            if weight > 0.0 {
                last = candidate.id;
                left -= weight;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }
}

/// The largest logit's token, the lowest of equal ones; `None` if every token is barred. Logits are not NaN here.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    let mut max = f32::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > max {
            max = logit;
            best = Some(id as u32);
        }
    }
    best
}

/// Brings the `n` most likely candidates to the front, in order; equal ones by id, so that the outcome is defined.
fn sort_first(candidates: &mut [Candidate], n: usize) {
    let order = |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
    if n > 0 && n < candidates.len() {
        candidates.select_nth_unstable_by(n - 1, order);
    }
    candidates[..n].sort_unstable_by(order);
}

/// Steele, Lea and Flood 2014: small, fast, and the same everywhere.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..1`, never 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sampled(settings: SamplerSettings, logits: &[f32], n: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(settings);
        (0..n).map(|_| sampler.sample(&mut logits.to_vec(), &[]).unwrap()).collect()
    }

    /// The set of tokens that the filters leave, written down plainly: the reference for the fast one.
    fn plainly_kept(settings: SamplerSettings, logits: &[f32]) -> Vec<u32> {
        let mut ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
        ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        if settings.top_k > 0 {
            ids.truncate(settings.top_k);
        }
        let max = logits[ids[0]];
        let weights: Vec<f32> = ids.iter().map(|&id| (logits[id] - max).exp()).collect();
        let total: f32 = weights.iter().sum();
        let mut sum = 0.0;
        let mut kept = Vec::new();
        for (&id, weight) in ids.iter().zip(&weights) {
            if settings.top_p < 1.0 && sum > 0.0 && sum >= settings.top_p {
                break;
            }
            sum += weight / total;
            if *weight >= settings.min_p {
                kept.push(id as u32);
            }
        }
        kept
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_tokens() {
        assert_eq!(sampled(SamplerSettings::default(), &[1.0, 3.0, 3.0, f32::NEG_INFINITY], 3), [1, 1, 1]);
        assert_eq!(sampled(SamplerSettings::default(), &[-3e38, -2e38], 1), [1]);
    }

    #[test]
    fn numbers_that_are_none_are_an_error_and_not_a_token() {
        for (logits, at) in
            [(vec![1.0, f32::NAN], 1), (vec![f32::INFINITY, 1.0], 0), (vec![f32::NEG_INFINITY; 3], 0), (vec![], 0)]
        {
            for temperature in [0.0, 1.0] {
                let mut sampler = Sampler::new(SamplerSettings { temperature, ..Default::default() });
                let error = sampler.sample(&mut logits.clone(), &[]).unwrap_err();
                assert!(matches!(error, EngineError::LogitsNotFinite { token } if token == at), "{logits:?}");
            }
        }
    }

    #[test]
    fn penalties_follow_their_formulas() {
        let settings = SamplerSettings {
            repeat_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            penalty_last_n: 4,
            ..Default::default()
        };
        let mut logits = vec![4.0, 4.0, -4.0, 4.0];
        // Token 3 is out of reach; token 9 is outside the vocabulary.
        Sampler::new(settings).sample(&mut logits, &[3, 1, 1, 2, 9]).unwrap();
        assert_eq!(logits, [4.0, 1.0, -8.75, 4.0]);
    }

    #[test]
    fn penalties_off_leave_the_logits_alone() {
        let settings = SamplerSettings { penalty_last_n: 0, repeat_penalty: 5.0, ..Default::default() };
        let mut logits = vec![1.0, 2.0];
        assert_eq!(Sampler::new(settings).sample(&mut logits, &[1, 1]).unwrap(), 1);
        assert_eq!(logits, [1.0, 2.0]);
    }

    #[test]
    fn frequencies_follow_the_distribution() {
        // Probabilities 1/2, 1/3, 1/6 at temperature 1; squared and renormalised at 1/2: 9/14, 4/14, 1/14.
        let logits = [3f32.ln(), 2f32.ln(), 1f32.ln()];
        for (temperature, expected) in [(1.0, [0.5, 1.0 / 3.0, 1.0 / 6.0]), (0.5, [9.0 / 14.0, 4.0 / 14.0, 1.0 / 14.0])]
        {
            let n = 20_000;
            let drawn = sampled(SamplerSettings { temperature, seed: 7, ..Default::default() }, &logits, n);
            for (id, expected) in expected.into_iter().enumerate() {
                let share = drawn.iter().filter(|&&token| token == id as u32).count() as f64 / n as f64;
                assert!((share - expected).abs() < 0.015, "token {id} at {temperature}: {share} for {expected}");
            }
        }
    }

    fn settings() -> impl Strategy<Value = SamplerSettings> {
        (0.05f32..2.0, 0usize..80, 0.0f32..1.2, 0.0f32..1.0, any::<u64>()).prop_map(
            |(temperature, top_k, top_p, min_p, seed)| SamplerSettings {
                temperature,
                top_k,
                top_p,
                min_p,
                seed,
                ..Default::default()
            },
        )
    }

    /// Logits half a unit apart at least, so that rounding cannot move a token over an edge of the filters.
    fn logits() -> impl Strategy<Value = Vec<f32>> {
        (1usize..200).prop_flat_map(|n| Just((0..n).map(|i| i as f32 * -0.5).collect::<Vec<_>>()).prop_shuffle())
    }

    proptest! {
        #[test]
        fn same_seed_same_tokens(settings in settings(), logits in logits()) {
            prop_assert_eq!(sampled(settings, &logits, 8), sampled(settings, &logits, 8));
        }

        #[test]
        fn every_token_drawn_passed_the_filters(settings in settings(), logits in logits()) {
            let kept = plainly_kept(settings, &logits);
            let mut sampler = Sampler::new(settings);
            for _ in 0..8 {
                let token = sampler.sample(&mut logits.clone(), &[]).unwrap();
                prop_assert!(kept.contains(&token), "{token} not in {kept:?}");
                let mut candidates: Vec<u32> = sampler.candidates.iter().map(|c| c.id).collect();
                candidates.sort_unstable();
                let mut expected = kept.clone();
                expected.sort_unstable();
                prop_assert_eq!(&candidates, &expected);
            }
        }

        #[test]
        fn greedy_is_the_plain_maximum(logits in proptest::collection::vec(-50f32..50.0, 1..300)) {
            let token = sampled(SamplerSettings::default(), &logits, 1)[0] as usize;
            prop_assert!(logits.iter().all(|&logit| logit <= logits[token]));
            prop_assert!(logits[..token].iter().all(|&logit| logit < logits[token]));
        }
    }
}
