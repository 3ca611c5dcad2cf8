//! What recurrent mixers share: their buffers, and the convolution over time that each of them begins with.

use super::super::{Loader, Part};
use crate::cpu::{ConvActivation, MAX_TAPS};
use crate::cuda::Gpus;
use crate::error::EngineError;
use crate::kv::LayerCache;
use crate::ops::{Convolve, Ops};
use crate::tensor::{Rows, Vector};

/// What recurrent mixers need of the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecurrentSizes {
    /// Channels of the convolution.
    pub(crate) conv: usize,
    /// What the state yields.
    pub(crate) y: usize,
    /// Heads.
    pub(crate) n_heads: usize,
    /// What old files make in one product.
    pub(crate) mixed: usize,
}

/// Buffers of recurrent mixers.
pub(crate) struct RecurrentBuffers {
    /// What goes through the convolution [n_tokens, conv].
    pub(crate) conv: Rows,
    /// The gate of what the state yields [n_tokens, y].
    pub(crate) gate: Rows,
    /// What the state yields [n_tokens, y].
    pub(crate) y: Rows,
    /// One number per head, twice [n_tokens, n_heads].
    pub(crate) per_head: [Rows; 2],
    /// Several of these in one, before they are taken apart [n_tokens, mixed].
    pub(crate) mixed: Rows,
}

/// A causal convolution over time, channel by channel.
#[derive(Debug)]
pub(crate) struct Convolution {
    /// [n_taps, n_channels]
    taps: Vector,
    bias: Option<Vector>,
    n_taps: usize,
    n_channels: usize,
    activation: ConvActivation,
}

impl Convolution {
    /// Reads `name.weight` [n_channels, n_taps], and `name.bias` if the file has it.
    pub(crate) fn load(
        part: &Part<'_>,
        name: &str,
        [n_channels, n_taps]: [usize; 2],
        activation: ConvActivation,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            taps: part.columns(&format!("{name}.weight"), [n_channels, n_taps])?,
            bias: part.vector_if_there(&format!("{name}.bias"), n_channels)?,
            n_taps,
            n_channels,
            activation,
        })
    }

    /// Taps, as a key says.
    ///
    /// Errors   none, or more than the kernels do
    pub(crate) fn n_taps(loader: &Loader, key: &str) -> Result<usize, EngineError> {
        match loader.count(key)? {
            n_taps if n_taps <= MAX_TAPS => Ok(n_taps),
            n_taps => Err(loader.invalid(key, format!("at most {MAX_TAPS}"), n_taps)),
        }
    }

    /// Elements of the inputs that it carries over, at the start of the layer's state.
    pub(crate) fn state_len(&self) -> usize {
        (self.n_taps - 1) * self.n_channels
    }

    /// In place.
    pub(crate) fn run(&self, ops: &Ops, x: &mut Rows, cache: &mut LayerCache) {
        let Self { taps, bias, activation, .. } = self;
        ops.convolve(&Convolve { taps, bias: bias.as_ref(), activation: *activation }, x, cache);
    }
}

impl RecurrentSizes {
    /// Makes room for another mixer.
    pub(crate) fn grow(&mut self, other: Self) {
        self.conv = self.conv.max(other.conv);
        self.y = self.y.max(other.y);
        self.n_heads = self.n_heads.max(other.n_heads);
        self.mixed = self.mixed.max(other.mixed);
    }

    /// Elements of the buffers of one token.
    pub(crate) fn per_token(&self) -> usize {
        self.conv + 2 * self.y + 2 * self.n_heads + self.mixed
    }
}

impl RecurrentBuffers {
    pub(crate) fn new(gpus: &Gpus, sizes: &RecurrentSizes, n_batch: usize) -> Result<Self, EngineError> {
        let rows = |width| Rows::new(gpus, n_batch, width);
        Ok(Self {
            conv: rows(sizes.conv)?,
            gate: rows(sizes.y)?,
            y: rows(sizes.y)?,
            per_head: [rows(sizes.n_heads)?, rows(sizes.n_heads)?],
            mixed: rows(sizes.mixed)?,
        })
    }
}
