//! What a file says about rotary position embedding.

use super::super::Loader;
use crate::cpu::{RopeOptions, RopeScaling};
use crate::error::EngineError;

pub(crate) use crate::cpu::RopeKind;

/// How heads are rotated.
#[derive(Clone, Debug)]
pub(crate) struct Rope {
    kind: RopeKind,
    n_rotated: usize,
    base: f32,
    factors: Option<Vec<f32>>,
    scaling: RopeScaling,
    magnitude: f32,
}

impl Rope {
    /// Reads the usual keys and `rope_freqs.weight`.
    ///
    /// n_rotated  elements of a head that rotate
    /// Errors     an odd count, a scaling that is unknown or contradicts itself
    pub(crate) fn load(loader: &Loader, kind: RopeKind, n_rotated: usize) -> Result<Self, EngineError> {
        check_even(loader, n_rotated)?;
        let base = loader.scale_or("rope.freq_base", 10_000.0)?;
        let scaling = scaling(loader)?;
        let factors = match loader.embed().has("rope_factors_long.weight") {
            true => long_or_short_factors(loader, n_rotated / 2)?,
            false => loader.embed().elems_if_there("rope_freqs.weight", n_rotated / 2)?,
        };
        let magnitude = loader.scale_or("rope.scaling.attn_factor", 1.0)? * sharpening(loader, scaling)?;
        Ok(Self { kind, n_rotated, base, factors, scaling, magnitude })
    }

    /// A rope of a test's own making.
    #[cfg(test)]
    pub(crate) fn of(options: &RopeOptions<'_>) -> Self {
        Self {
            kind: options.kind,
            n_rotated: options.n_rot,
            base: options.freq_base,
            factors: options.freq_factors.map(<[f32]>::to_vec),
            scaling: options.scaling,
            magnitude: options.magnitude,
        }
    }

    /// The same for layers with a frequency base of their own, whose frequencies nothing changes.
    ///
    /// Errors   an odd count
    pub(crate) fn plain(&self, loader: &Loader, base: f32, n_rotated: usize) -> Result<Self, EngineError> {
        check_even(loader, n_rotated)?;
        Ok(Self { base, n_rotated, ..self.unscaled() })
    }

    /// Elements of a head that rotate.
    pub(crate) fn n_rotated(&self) -> usize {
        self.n_rotated
    }

    /// The same for layers with a window, which may have a frequency base of their own.
    pub(crate) fn with_window_base(&self, loader: &Loader) -> Result<Self, EngineError> {
        Ok(Self { base: loader.scale_or("rope.freq_base_swa", self.base)?, ..self.clone() })
    }

    /// The same without what is done for long contexts.
    pub(crate) fn unscaled(&self) -> Self {
        Self { factors: None, scaling: RopeScaling::None, magnitude: 1.0, ..self.clone() }
    }

    /// Context over trained context, if YaRN bridges the two.
    pub(crate) fn yarn_factor(&self) -> Option<f32> {
        match self.scaling {
            RopeScaling::Yarn { factor, .. } => Some(factor),
            _ => None,
        }
    }

    /// Factor of the rotated values.
    pub(crate) fn magnitude(&self) -> f32 {
        self.magnitude
    }

    /// The same as the kernels take it.
    pub(crate) fn options(&self) -> RopeOptions<'_> {
        RopeOptions {
            kind: self.kind,
            n_rot: self.n_rotated,
            freq_base: self.base,
            freq_factors: self.factors.as_deref(),
            scaling: self.scaling,
            magnitude: self.magnitude,
        }
    }
}

fn check_even(loader: &Loader, n_rotated: usize) -> Result<(), EngineError> {
    match n_rotated.is_multiple_of(2) {
        true => Ok(()),
        false => Err(loader.invalid("rope.dimension_count", "an even number", n_rotated)),
    }
}

fn scaling(loader: &Loader) -> Result<RopeScaling, EngineError> {
    let facts = loader.facts();
    // The key's old name stands for linear scaling; zero stands for none.
    let factor = match loader.scale_or_none("rope.scaling.factor")? {
        Some(factor) => factor,
        None => loader.scale_or_none("rope.scale_linear")?.unwrap_or(1.0),
    };
    match facts.arch_str("rope.scaling.type")?.unwrap_or("linear") {
        "none" => Ok(RopeScaling::None),
        "linear" | "longrope" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" | "longrope" => Ok(RopeScaling::Linear { factor }),
        "yarn" => {
            let original_context = match facts.arch_u32_or("rope.scaling.original_context_length", 0)? {
                0 => loader.count("context_length")?,
                length => length as usize,
            };
            Ok(RopeScaling::Yarn {
                factor,
                original_context: original_context as f32,
                beta_fast: loader.scale_or("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: loader.scale_or("rope.scaling.yarn_beta_slow", 1.0)?,
            })
        }
        other => {
            Err(loader.invalid("rope.scaling.type", "`none`, `linear`, `yarn` or `longrope`", format!("`{other}`")))
        }
    }
}

/// Some models have factors for contexts as trained and others for longer ones; which are used depends on the context asked for.
fn long_or_short_factors(loader: &Loader, n: usize) -> Result<Option<Vec<f32>>, EngineError> {
    let original_context = match loader.facts().arch_u32_or("rope.scaling.original_context_length", 0)? {
        0 => loader.count("context_length")?,
        length => length as usize,
    };
    let is_long = loader.context_length() > original_context;
    loader.embed().elems_if_there(if is_long { "rope_factors_long.weight" } else { "rope_factors_short.weight" }, n)
}

/// YaRN sharpens attention to make up for the interpolation, unless the file says how much of it is dealt with elsewhere.
/// Source: llama.cpp, where `yarn_attn_factor` is set; `deepseek2` deals with all of it.
fn sharpening(loader: &Loader, scaling: RopeScaling) -> Result<f32, EngineError> {
    let RopeScaling::Yarn { factor, .. } = scaling else { return Ok(1.0) };
    let by = |multiplier: f32| if factor > 1.0 { 1.0 + 0.1 * multiplier * factor.ln() } else { 1.0 };
    let facts = loader.facts();
    match facts.arch_f32_or("rope.scaling.yarn_log_multiplier", 0.0)? {
        0.0 => Ok(by(1.0)),
        _ if facts.architecture()? == "deepseek2" => Ok(1.0),
        multiplier => Ok(by(1.0) / by(multiplier)),
    }
}
