//! What each layer remembers of the tokens before: keys and values per position, a window of them, a latent, or a state
//! of fixed size. Read from the layer's own tensors, because their rows are what is stored.
use tandem_engine::gguf::{GgufError, ModelFacts, Value};

/// Bytes of an f16.
const ELEM_BYTES: u64 = 2;
/// Bytes of an f32: recurrent states keep full precision.
const STATE_ELEM_BYTES: u64 = 4;
/// Caches are allocated in steps of this many positions. Source: llama.cpp, `GGML_PAD(n_ctx, 256)`.
const CELL_STEP: u64 = 256;

/// Sliding layers where the file does not list them: (architecture, every n-th layer sees everything).
/// Source: `set_swa_pattern` calls in llama.cpp's `src/models`.
const WINDOW_PATTERNS: &[(&str, u32)] = &[("gemma2", 2), ("gemma3", 6), ("gpt-oss", 2), ("cohere2", 4)];

/// What one layer keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LayerKv {
    /// Elements per position: keys and values, or a latent.
    elems_per_token: u64,
    /// Positions in view, if not all.
    window: Option<u32>,
    /// State that does not grow.
    state_bytes: u64,
}

impl LayerKv {
    /// Every layer's, in order.
    pub(super) fn of_all(facts: &ModelFacts) -> Result<Vec<Self>, GgufError> {
        let n_layers = facts.n_layers()? as usize;
        let mut layers = vec![Self::default(); n_layers];
        let fused = fused_elems(facts)?;
        let recurrent = recurrent_state_bytes(facts)?;
        let mut is_recurrent = vec![false; n_layers];
        let mut has_fused = vec![false; n_layers];
        for tensor in &facts.tensors {
            let Some((index, rest)) = ModelFacts::layer_of(&tensor.name).filter(|(index, _)| *index < n_layers) else {
                continue;
            };
            let rows = tensor.shape.first().copied().unwrap_or(0);
            let layer = &mut layers[index];
            match rest {
                "attn_k.weight" | "attn_v.weight" | "attn_kv_a_mqa.weight" => {
                    layer.elems_per_token = layer.elems_per_token.saturating_add(rows);
                }
                "attn_qkv.weight" => has_fused[index] = true,
                "ssm_conv1d.weight" => {
                    is_recurrent[index] = true;
                    layer.state_bytes = recurrent;
                }
                "shortconv.conv.weight" => {
                    let taps = tensor.shape.last().copied().unwrap_or(0).saturating_sub(1);
                    layer.state_bytes = rows.saturating_mul(taps).saturating_mul(STATE_ELEM_BYTES);
                }
                _ => {}
            }
        }
        for index in 0..n_layers {
            // A recurrent layer's fused matrix feeds its state, not a cache.
            if has_fused[index] && !is_recurrent[index] {
                layers[index].elems_per_token = fused[index];
            }
            layers[index].window = window(facts, index)?;
        }
        // Tensors of names not known here: every layer is taken to keep what the head counts say.
        if layers.iter().all(|layer| layer.elems_per_token == 0 && layer.state_bytes == 0) {
            layers.iter_mut().zip(fused).for_each(|(layer, elems)| layer.elems_per_token = elems);
        }
        Ok(layers)
    }

    /// Whether anything grows with the context.
    pub(super) fn is_cached(&self) -> bool {
        self.elems_per_token > 0
    }

    /// Size for a context; `n_batch` tokens beyond the window are in flight.
    pub(super) fn bytes(&self, context: u32, n_batch: u32) -> u64 {
        let in_view = self.window.map_or(context, |window| context.min(window.saturating_add(n_batch)));
        let cells = u64::from(in_view).next_multiple_of(CELL_STEP);
        cells.saturating_mul(self.elems_per_token).saturating_mul(ELEM_BYTES).saturating_add(self.state_bytes)
    }

    /// Read per token when `n_tokens` are in the context; a state is read and written.
    pub(super) fn read_bytes(&self, n_tokens: u32) -> u64 {
        let in_view = u64::from(self.window.map_or(n_tokens, |window| n_tokens.min(window)));
        let cache = in_view.saturating_mul(self.elems_per_token).saturating_mul(ELEM_BYTES);
        cache.saturating_add(self.state_bytes.saturating_mul(2))
    }
}

/// Keys and values per position where one matrix makes queries, keys and values.
fn fused_elems(facts: &ModelFacts) -> Result<Vec<u64>, GgufError> {
    let n_layers = facts.n_layers()? as usize;
    let n_heads = facts.arch_u32_per_layer("attention.head_count")?.unwrap_or_else(|| vec![0; n_layers]);
    let n_kv_heads = facts.arch_u32_per_layer("attention.head_count_kv")?.unwrap_or_else(|| n_heads.clone());
    let n_embd = facts.arch_u32_or("embedding_length", 0)?;
    let elems = |(n_heads, n_kv_heads): (&u32, &u32)| {
        let default = n_embd.checked_div(*n_heads).unwrap_or(0);
        let key = facts.arch_u32_or("attention.key_length", default)?;
        let value = facts.arch_u32_or("attention.value_length", default)?;
        Ok(u64::from(*n_kv_heads).saturating_mul(u64::from(key) + u64::from(value)))
    };
    n_heads.iter().zip(&n_kv_heads).map(elems).collect()
}

/// State of one recurrent layer: the convolution's last inputs, and a matrix per head.
fn recurrent_state_bytes(facts: &ModelFacts) -> Result<u64, GgufError> {
    let key = |name| facts.arch_u32_or(name, 0).map(u64::from);
    let (taps, inner) = (key("ssm.conv_kernel")?.saturating_sub(1), key("ssm.inner_size")?);
    let (groups, state) = (key("ssm.group_count")?, key("ssm.state_size")?);
    let channels = inner.saturating_add(groups.saturating_mul(state).saturating_mul(2));
    let values = taps.saturating_mul(channels).saturating_add(state.saturating_mul(inner));
    Ok(values.saturating_mul(STATE_ELEM_BYTES))
}

/// Positions that a layer sees, if it slides.
fn window(facts: &ModelFacts, index: usize) -> Result<Option<u32>, GgufError> {
    let window = facts.arch_u32_or("attention.sliding_window", 0)?;
    if window == 0 {
        return Ok(None);
    }
    let key = facts.arch_key("attention.sliding_window_pattern")?;
    let slides = match facts.metadata.get(&key) {
        Some(Value::Array(pattern)) => {
            pattern.scalars().and_then(|mut flags| flags.nth(index)?.as_bool()).unwrap_or(false)
        }
        _ => {
            let architecture = facts.architecture()?;
            let known = WINDOW_PATTERNS.iter().find(|(name, _)| *name == architecture).map_or(1, |(_, every)| *every);
            let every = facts.get_u32(&key)?.unwrap_or(known).max(1);
            !(index as u64 + 1).is_multiple_of(u64::from(every))
        }
    };
    Ok(slides.then_some(window))
}
