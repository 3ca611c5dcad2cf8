//! `qwen2`, `qwen2moe`, `qwen3`, `qwen3moe`: like `llama` with rope in halves. The second generation has biases on queries, keys and
//! values (read wherever a file has some), the third norms of query and key heads; experts of the second keep their weights as they
//! are and stand beside a gated shared one.

use super::blocks::{AttentionOptions, Ground, HeadNorms, PreNorm, RopeKind};
use super::{Architecture, Loader};
use crate::error::EngineError;
use crate::moe::{Gating, Weights};

fn layers() -> PreNorm {
    PreNorm { rope: RopeKind::Neox, ..PreNorm::default() }
}

pub(super) fn load_qwen2(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    if loader.has_experts()? {
        loader.require(&["ffn_gate_inp_shexp.weight"])?;
    }
    let moe = PreNorm { experts: (Gating::Softmax, Weights::AsTheyAre), ..layers() };
    Ok(Box::new(moe.load(loader, |_, attention| attention)?))
}

pub(super) fn load_qwen3(loader: &Loader) -> Result<Box<dyn Architecture>, EngineError> {
    let norms = HeadNorms::PerHead { eps: Ground::load(loader)?.eps };
    Ok(Box::new(layers().load(loader, |_, attention| AttentionOptions { norms, ..attention })?))
}
