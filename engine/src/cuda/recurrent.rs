//! The operations of recurrent mixers.

use super::gpu::{Arg, At, Gpu};
use super::ops::DeviceRows;
use crate::cpu::{DeltaNet, KeyHeads, Scan};

/// Rows of a state that there is a kernel for.
pub(crate) const MAX_STATE: usize = 256;
/// Columns of a state that a block of threads takes, a warp each; the kernels count on it.
const COLUMNS: usize = 8;
const THREADS: usize = 32 * COLUMNS;

impl Gpu {
    /// taps     [n_taps, n_channels]
    /// history  [n_taps - 1, n_channels]
    pub(crate) fn convolve(
        &self,
        x: DeviceRows,
        (taps, bias): (At, Option<At>),
        n_taps: usize,
        history: At,
        is_silu: bool,
    ) {
        let args: [Arg; 8] = [
            x.at.into(),
            taps.into(),
            bias.unwrap_or(At::NONE).into(),
            history.into(),
            x.n_rows.into(),
            x.width.into(),
            n_taps.into(),
            is_silu.into(),
        ];
        self.each(self.functions.convolve, x.width, args);
    }

    pub(crate) fn delta_net_gates(&self, beta: DeviceRows, alpha: DeviceRows, dt_bias: At, a: At) {
        let n = beta.n_elems();
        let args = [beta.at.into(), alpha.at.into(), dt_bias.into(), a.into(), n.into(), beta.width.into()];
        self.each(self.functions.delta_net_gates, n, args);
    }

    /// gates    beta and decay
    pub(crate) fn delta_net(
        &self,
        net: &DeltaNet,
        qkv: DeviceRows,
        [beta, decay]: [At; 2],
        eps: f32,
        state: At,
        y: DeviceRows,
    ) {
        let DeltaNet { n_k_heads, n_v_heads, head_dim, key_heads } = *net;
        let keys = qkv.at.plus(n_k_heads * head_dim * size_of::<f32>());
        for (at, length) in [(qkv.at, 1.0 / (head_dim as f32).sqrt()), (keys, 1.0f32)] {
            let args = [at.into(), n_k_heads.into(), head_dim.into(), qkv.width.into(), eps.into(), length.into()];
            self.launch(self.functions.unit_heads, [qkv.n_rows * n_k_heads, 1, 1], THREADS, args);
        }
        let args: [Arg; 10] = [
            qkv.at.into(),
            beta.into(),
            decay.into(),
            state.into(),
            y.at.into(),
            qkv.n_rows.into(),
            n_k_heads.into(),
            n_v_heads.into(),
            head_dim.into(),
            (key_heads == KeyHeads::Tiled).into(),
        ];
        self.launch(self.functions.delta_net, [head_dim.div_ceil(COLUMNS), n_v_heads, 1], THREADS, args);
    }

    pub(crate) fn scan_steps(&self, dt: DeviceRows, bias: At) {
        let n = dt.n_elems();
        self.each(self.functions.scan_steps, n, [dt.at.into(), bias.into(), n.into(), dt.width.into()]);
    }

    /// rates    a and d, [n_heads] each
    pub(crate) fn scan(&self, scan: &Scan, xbc: DeviceRows, steps: At, [a, d]: [At; 2], state: At, y: DeviceRows) {
        let Scan { n_heads, head_dim, n_groups, n_state } = *scan;
        let args: [Arg; 10] = [
            xbc.at.into(),
            steps.into(),
            a.into(),
            d.into(),
            state.into(),
            y.at.into(),
            xbc.n_rows.into(),
            head_dim.into(),
            n_groups.into(),
            n_state.into(),
        ];
        self.launch(self.functions.scan, [head_dim.div_ceil(COLUMNS), n_heads, 1], THREADS, args);
    }
}
