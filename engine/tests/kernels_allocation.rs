//! A forward pass allocates nothing: every operation of the CPU backend under a counting allocator.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tandem_engine::cpu::{
    Activations, AttentionArgs, AttentionOptions, AttentionScratch, Cpu, Gate, Isa, KvSlice, Matrix, Rope, RopeKind,
    RopeOptions, RopeScaling, Rounding, add, attention, gate, matmul, matmul_list, rms_norm, softmax,
};
use tandem_engine::gguf::TensorType;

struct Counting;

static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn operations_allocate_nothing() {
    let (n_cols, n_tokens, head_dim) = (576, 40, 64);
    let cpu = Cpu::new(Isa::best(), 3).unwrap();
    let bytes = vec![0; n_cols * n_cols / 32 * 20];
    let w = Matrix { tensor_type: TensorType::Q4_1, n_rows: n_cols, n_cols, bytes: &bytes };
    let mut x = vec![0.5f32; n_tokens * n_cols];
    let mut y = vec![0f32; n_tokens * n_cols];
    let mut z = y.clone();
    let norm = vec![1.0; n_cols];
    let cache = vec![half::f16::ONE; 2000 * 3 * head_dim];
    let mut activations = Activations::new(n_cols, n_tokens, Rounding::Once);
    let mut scratch = AttentionScratch::new(9, head_dim);
    let mut rope = Rope::new(
        &RopeOptions {
            kind: RopeKind::Norm,
            n_rot: head_dim,
            freq_base: 10_000.0,
            freq_factors: None,
            scaling: RopeScaling::None,
            magnitude: 1.0,
        },
        n_tokens,
    );
    let mut pass = |n_tokens: usize| {
        let n = n_tokens * n_cols;
        rms_norm(&cpu, &x[..n], &norm, 1e-5, &mut y[..n]);
        activations.set(&cpu, &y[..n], n_cols);
        matmul(&cpu, w, &activations, &mut y[..n]);
        matmul_list(&cpu, &mut [(w, &mut y[..n]), (w, &mut z[..n])], &activations);
        rope.set_positions(1900, n_tokens);
        rope.apply(&cpu, &mut y[..n], head_dim);
        let (k, v) = (KvSlice::F16(&cache), KvSlice::F16(&cache));
        let args = AttentionArgs {
            q: &y[..n],
            k,
            v: Some(v),
            n_heads: 9,
            n_kv_heads: 3,
            key_dim: head_dim,
            value_dim: head_dim,
            first_pos: 1900,
            scale: 0.125,
            options: AttentionOptions::default(),
        };
        attention(&cpu, &mut scratch, &args, &mut z[..n]);
        gate(&cpu, Gate::Silu, &mut x[..n], &z[..n]);
        add(&cpu, &mut x[..n], &y[..n]);
        softmax(&cpu, &mut x[..n], n_cols);
    };
    // the first use may set up what the standard library keeps per thread
    [1, n_tokens].into_iter().for_each(&mut pass);
    let before = N_ALLOCATIONS.load(Relaxed);
    for _ in 0..20 {
        [1, n_tokens].into_iter().for_each(&mut pass);
    }
    assert_eq!(N_ALLOCATIONS.load(Relaxed) - before, 0);
}
