//! What each layer remembers of the tokens before: keys and values per position, a window of them, a latent, or a state of fixed
//! size. The engine says what; here it becomes bytes.
use tandem_engine::kv::{CacheOptions, CacheShape, KvShape, KvType, KvTypes};

use crate::wire::Keeps;

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerKv(pub(super) CacheShape);

impl Default for LayerKv {
    fn default() -> Self {
        Self(CacheShape::Nothing)
    }
}

impl LayerKv {
    /// Whether anything grows with the context.
    pub(super) fn is_cached(&self) -> bool {
        matches!(self.0, CacheShape::Attention(_))
    }

    /// What it remembers, in a word.
    pub(super) fn keeps(&self) -> Keeps {
        match self.0 {
            CacheShape::Nothing => Keeps::Nothing,
            CacheShape::Attention(KvShape { window: Some(_), .. }) => Keeps::Window,
            CacheShape::Attention(_) => Keeps::All,
            CacheShape::Recurrent { .. } => Keeps::State,
        }
    }

    /// Whether its heads can be stored so.
    pub(super) fn takes(&self, types: KvTypes) -> bool {
        self.0.check(types).is_ok()
    }

    /// Of so many tokens before, those that a token attends to; none where there is a state instead.
    pub(super) fn n_seen(&self, n_tokens: u32) -> u32 {
        match self.0 {
            CacheShape::Attention(kv) => {
                kv.window.map_or(n_tokens, |window| n_tokens.min(u32::try_from(window).unwrap_or(u32::MAX)))
            }
            CacheShape::Nothing | CacheShape::Recurrent { .. } => 0,
        }
    }

    /// Size for a context; `n_batch` tokens beyond a window are in flight.
    pub(super) fn bytes(&self, context: u32, n_batch: u32, types: KvTypes) -> u64 {
        bytes(self.0, context, n_batch, types)
    }

    /// Read per token when `n_tokens` are in the context, in f16.
    pub(super) fn read_bytes(&self, n_tokens: u32) -> u64 {
        self.read_bytes_as(n_tokens, KvTypes::both(KvType::F16))
    }

    /// The same for any type; a state is read and written.
    pub(super) fn read_bytes_as(&self, n_tokens: u32, types: KvTypes) -> u64 {
        match self.0 {
            CacheShape::Nothing => 0,
            CacheShape::Attention(kv) => {
                let window = kv.window.map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX));
                let all = CacheShape::Attention(KvShape { window: None, ..kv });
                bytes(all, n_tokens.min(window), 1, types)
            }
            CacheShape::Recurrent { .. } => self.bytes(n_tokens, 1, types).saturating_mul(2),
        }
    }
}

fn bytes(shape: CacheShape, context: u32, n_batch: u32, types: KvTypes) -> u64 {
    shape.n_bytes(&CacheOptions {
        n_positions: context as usize,
        n_batch: n_batch as usize,
        types,
        checkpoint_bytes: 0,
    })
}
