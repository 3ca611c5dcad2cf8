//! Which sampling is used: what the request says, else the settings, else the model file, else the defaults. Pure.

use std::hash::{BuildHasher, Hasher, RandomState};

use tandem_engine::gguf::{GgufError, ModelFacts};
use tandem_engine::sample::SamplerSettings;

use crate::wire::Sampling;

/// Defaults where nobody says anything. Source: llama.cpp's own, with a cooler temperature for small models.
const TEMPERATURE: f32 = 0.7;
const TOP_K: u32 = 40;
const TOP_P: f32 = 0.95;
const MIN_P: f32 = 0.05;
const NO_REPEAT_PENALTY: f32 = 1.0;

/// What the model's makers recommend, from `general.sampling.*`; unreadable or absurd values count as absent.
pub fn recommended(facts: &ModelFacts) -> Sampling {
    let float = |key: &str, most: f32| {
        let value = usable(facts.get_f32(&format!("general.sampling.{key}")));
        value.filter(|value| (0.0..=most).contains(value))
    };
    Sampling {
        temperature: float("temp", 5.0),
        top_k: usable(facts.get_u32("general.sampling.top_k")),
        top_p: float("top_p", 1.0),
        min_p: float("min_p", 1.0),
        repeat_penalty: float("penalty_repeat", 10.0).filter(|value| *value > 0.0),
        ..Sampling::default()
    }
}

/// The first of the layers that says something, parameter by parameter.
pub fn merged(layers: &[&Sampling]) -> Sampling {
    fn first<T: Copy>(layers: &[&Sampling], field: impl Fn(&Sampling) -> Option<T>) -> Option<T> {
        layers.iter().find_map(|layer| field(layer))
    }
    Sampling {
        temperature: first(layers, |s| s.temperature),
        top_k: first(layers, |s| s.top_k),
        top_p: first(layers, |s| s.top_p),
        min_p: first(layers, |s| s.min_p),
        repeat_penalty: first(layers, |s| s.repeat_penalty),
        presence_penalty: first(layers, |s| s.presence_penalty),
        frequency_penalty: first(layers, |s| s.frequency_penalty),
        seed: first(layers, |s| s.seed),
        max_tokens: first(layers, |s| s.max_tokens),
    }
}

/// The engine's settings, with defaults for what is still open or is no number, and a random seed if none is given.
pub fn settings(sampling: &Sampling) -> SamplerSettings {
    let finite = |value: Option<f32>, default: f32| value.filter(|value| value.is_finite()).unwrap_or(default);
    SamplerSettings {
        temperature: finite(sampling.temperature, TEMPERATURE).max(0.0),
        top_k: sampling.top_k.unwrap_or(TOP_K) as usize,
        top_p: finite(sampling.top_p, TOP_P),
        min_p: finite(sampling.min_p, MIN_P),
        repeat_penalty: finite(sampling.repeat_penalty, NO_REPEAT_PENALTY),
        presence_penalty: finite(sampling.presence_penalty, 0.0),
        frequency_penalty: finite(sampling.frequency_penalty, 0.0),
        seed: sampling.seed.map_or_else(random_seed, u64::from),
        ..SamplerSettings::default()
    }
}

/// The standard library's source of random keys; nothing here needs to be secret.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn usable<T>(value: Result<Option<T>, GgufError>) -> Option<T> {
    value.ok().flatten()
}

#[cfg(test)]
mod tests {
    use tandem_engine::gguf::{Prefix, Writer};

    use super::*;

    fn facts(writer: Writer) -> ModelFacts {
        let bytes = writer.to_bytes().unwrap();
        match ModelFacts::from_prefix(&bytes, bytes.len() as u64).unwrap() {
            Prefix::Complete(facts) => facts,
            Prefix::NeedMore { .. } => unreachable!("the whole file was given"),
        }
    }

    #[test]
    fn the_nearest_word_counts() {
        let request = Sampling { temperature: Some(0.0), ..Sampling::default() };
        let chosen = Sampling { temperature: Some(1.0), top_k: Some(7), ..Sampling::default() };
        let file = Sampling { top_k: Some(64), top_p: Some(0.8), ..Sampling::default() };
        let settings = settings(&merged(&[&request, &chosen, &file]));
        assert_eq!((settings.temperature, settings.top_k, settings.top_p, settings.min_p), (0.0, 7, 0.8, MIN_P));
    }

    #[test]
    fn the_files_recommendations_are_read_and_absurd_ones_are_not() {
        let good = facts(
            Writer::new("llama")
                .meta("general.sampling.temp", 0.6_f32)
                .meta("general.sampling.top_k", 20_i32)
                .meta("general.sampling.penalty_repeat", 1.1_f32),
        );
        let sampling = recommended(&good);
        assert_eq!((sampling.temperature, sampling.top_k, sampling.repeat_penalty), (Some(0.6), Some(20), Some(1.1)));
        let absurd = facts(
            Writer::new("llama")
                .meta("general.sampling.temp", f32::NAN)
                .meta("general.sampling.top_k", -3_i32)
                .meta("general.sampling.top_p", 7.0_f32)
                .meta("general.sampling.penalty_repeat", 0.0_f32),
        );
        assert_eq!(recommended(&absurd), Sampling::default());
    }

    #[test]
    fn seeds_differ_unless_given() {
        let open = Sampling::default();
        assert_ne!(settings(&open).seed, settings(&open).seed);
        assert_eq!(settings(&Sampling { seed: Some(7), ..open }).seed, 7);
    }
}
