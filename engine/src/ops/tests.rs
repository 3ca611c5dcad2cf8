//! Every operation on the simulated driver against the processor, at odd sizes.

use std::sync::{Arc, OnceLock};

use super::*;
use crate::arch::blocks::{Rope, RopeKind};
use crate::cpu::{ConvActivation, DeltaNet, GateOrder, Isa, KeyHeads, RopeOptions, RopeScaling, Rounding, Scan};
use crate::gguf::{MappedModel, ModelFacts, TensorType, Writer};
use crate::kv::{Cache, CacheOptions, CacheShape, KV_TYPES, KvShape, KvType, KvTypes, Values};
use crate::quant::FORMATS;
use crate::tensor::WeightStack;

/// One device, and what to make operands with.
struct Bench {
    ops: Ops,
    device: Device,
}

/// Odd shapes, some wider than a block of threads.
const SIZES: [(usize, usize); 5] = [(1, 1), (3, 7), (5, 33), (2, 576), (9, 300)];

/// Sums in another order, functions by other series.
const TOLERANCE: f32 = 2e-6;

fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step + step).sin() * 2.5).collect()
}

impl Bench {
    fn both() -> [Bench; 2] {
        // Opened once: the driver reads all kernels.
        static GPUS: OnceLock<Gpus> = OnceLock::new();
        let gpus = GPUS.get_or_init(|| {
            tandem_simcuda::drive();
            let mut placement = crate::place::Placement::all_cpu(1);
            placement.head = Device::Cuda(0);
            Gpus::open(&placement).unwrap()
        });
        [Device::Cpu, Device::Cuda(0)].map(|device| {
            let ops = Ops::new(Cpu::new(Isa::best(), 1).unwrap(), gpus.clone());
            Bench { ops, device }
        })
    }

    fn rows(&self, n: usize, width: usize, step: f32) -> Rows {
        let mut rows = self.empty(n, width);
        rows.elems_mut().copy_from_slice(&wave(n * width, step));
        rows.move_to(self.device);
        rows
    }

    /// Whole numbers that rounding to 8 bits leaves as they are: each 32 of a row have 127 for their largest.
    fn whole(&self, n: usize, width: usize) -> Rows {
        let mut rows = self.empty(n, width);
        for (t, row) in rows.elems_mut().chunks_exact_mut(width).enumerate() {
            for (i, x) in row.iter_mut().enumerate() {
                *x = if i.is_multiple_of(32) { 127.0 } else { ((i + 11 * t) * 37 % 201) as f32 - 100.0 };
            }
        }
        rows.move_to(self.device);
        rows
    }

    fn empty(&self, n: usize, width: usize) -> Rows {
        let mut rows = Rows::new(self.ops.gpus(), n, width).unwrap();
        rows.reshape(n, width);
        rows
    }

    fn vector(&self, elems: Vec<f32>) -> Vector {
        Vector::of_elems(self.ops.gpus().get(self.device).unwrap(), elems).unwrap()
    }

    fn input(&self, x: &Rows) -> Input {
        let mut input = Input::new(self.ops.gpus(), x.n_rows() * 8, x.width(), Rounding::Twice).unwrap();
        self.ops.prepare(x, &mut input);
        input
    }

    fn cache(&self, shape: CacheShape, types: KvTypes) -> Cache {
        let options = CacheOptions { n_positions: 700, n_batch: 8, types, checkpoint_bytes: 0 };
        Cache::new(&[(shape, self.device)], self.ops.gpus(), &options).unwrap()
    }

    fn stack(&self, model: &Arc<MappedModel>) -> WeightStack {
        let gpu = self.ops.gpus().get(self.device).unwrap();
        WeightStack::new(gpu, model, &[&model.facts.tensors[0]], None).unwrap()
    }
}

/// Back on the host.
fn elems(mut rows: Rows, bench: &Bench) -> Vec<f32> {
    assert_eq!(rows.device(), bench.device, "an operation leaves its results where it ran");
    rows.move_to(Device::Cpu);
    bench.ops.check().unwrap();
    rows.elems().to_vec()
}

/// Runs `f` on both devices and compares what it yields.
#[track_caller]
fn agree(what: &str, tolerance: f32, f: impl Fn(&Bench) -> Vec<f32>) {
    let [cpu, gpu] = &Bench::both();
    let (want, got) = (f(cpu), f(gpu));
    assert_near(what, &got, &want, tolerance);
}

#[track_caller]
fn assert_near(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(1e-6f32, |max, w| max.max(w.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * largest, "{what}, {i}: {got}, expected {want}, largest {largest}");
    }
}

#[test]
fn elementwise_operations_agree() {
    for (n, width) in SIZES {
        let in_place = |what: &str, f: &dyn Fn(&Bench, &mut Rows)| {
            agree(&format!("{what} {n} x {width}"), TOLERANCE, |bench| {
                let mut x = bench.rows(n, width, 0.37);
                f(bench, &mut x);
                elems(x, bench)
            });
        };
        in_place("add", &|b, x| b.ops.add(x, &b.rows(n, width, 0.7)));
        in_place("bias", &|b, x| b.ops.add_bias(x, Some(&b.vector(wave(width, 0.7)))));
        in_place("scale", &|b, x| b.ops.scale(x, 1.7));
        in_place("multiply", &|b, x| b.ops.multiply(x, &b.vector(wave(width, 0.7))));
        in_place("multiply_rows", &|b, x| b.ops.multiply_rows(x, &b.rows(n, width, 0.7)));
        in_place("clamp", &|b, x| b.ops.clamp(x, 1.5));
        in_place("softcap", &|b, x| b.ops.softcap(x, 2.0));
        in_place("relu", &|b, x| b.ops.relu_squared(x));
        for kind in [Gate::Silu, Gate::Gelu, Gate::ClampedSwish] {
            in_place("gate", &|b, x| {
                b.ops.scale(x, 4.0);
                b.ops.gate(kind, x, &b.rows(n, width, 0.7));
            });
        }
        in_place("sigmoid of elements", &|b, x| b.ops.sigmoid_mul(x, &b.rows(n, width, 0.7)));
        in_place("sigmoid of rows", &|b, x| b.ops.sigmoid_mul(x, &b.rows(n, 1, 0.7)));
        in_place("positions", &|b, x| b.ops.scale_by_position(x, 3, |pos| 1.0 + pos as f32));
    }
}

#[test]
fn what_is_no_number_stays_none_on_both_devices() {
    type Operation = fn(&Ops, &mut Rows);
    let operations: [Operation; 2] = [|ops, x| ops.relu_squared(x), |ops, x| ops.keep_outstanding(x, 0.3)];
    for bench in Bench::both() {
        for operation in operations {
            let mut x = bench.empty(1, 40);
            x.elems_mut().fill(f32::NAN);
            x.move_to(bench.device);
            operation(&bench.ops, &mut x);
            assert!(elems(x, &bench).iter().all(|elem| elem.is_nan()), "{}", bench.device);
        }
    }
}

#[test]
fn norms_agree() {
    for (n, width) in SIZES {
        agree(&format!("rms_norm {n} x {width}"), TOLERANCE, |bench| {
            let (x, weight) = (bench.rows(n, width, 0.37), bench.vector(wave(width, 0.11)));
            let mut y = bench.empty(n - n / 2, width);
            bench.ops.rms_norm(&x, n / 2..n, &weight, 1e-5, &mut y);
            bench.ops.layer_norm_in_place(&mut y, 1e-5);
            elems(y, bench)
        });
        agree(&format!("heads {n} x {width}"), TOLERANCE, |bench| {
            let mut x = bench.rows(n, 3 * width, 0.37);
            bench.ops.rms_norm_in_place(&mut x, &bench.vector(wave(width, 0.11)), 1e-5);
            elems(x, bench)
        });
        for (order, n_weights) in [(GateOrder::NormFirst, width), (GateOrder::GateFirst, 3 * width)] {
            agree(&format!("gated_norm {n} x {width}"), TOLERANCE, |bench| {
                let (mut x, gate) = (bench.rows(n, 3 * width, 0.37), bench.rows(n, 3 * width, 1.1));
                bench.ops.gated_norm((&bench.vector(wave(n_weights, 0.11)), order), width, 1e-5, &mut x, &gate);
                elems(x, bench)
            });
        }
        agree(&format!("outstanding {n} x {width}"), 1e-5, |bench| {
            let mut x = bench.rows(n, width, 0.37);
            bench.ops.keep_outstanding(&mut x, 0.3);
            elems(x, bench)
        });
    }
}

#[test]
fn streams_agree() {
    for (n, width) in SIZES {
        agree(&format!("streams {n} x {width}"), 1e-5, |bench| {
            let (mut x, mut others) = (bench.rows(n, width, 0.37), bench.rows(n, 3 * width, 0.21));
            let held = bench.rows(n, width, 0.5);
            bench.ops.predict_streams(&mut x, &mut others, &bench.rows(n, 16, 0.9));
            bench.ops.correct_streams(&mut x, &held, &mut others, &bench.rows(n, 4, 0.8));
            bench.ops.add_to_each(&mut others, &x);
            bench.ops.match_length(&mut others, &held);
            [elems(x, bench), elems(others, bench)].concat()
        });
    }
}

#[test]
fn pieces_agree() {
    agree("split, join, columns", 0.0, |bench| {
        let x = bench.rows(5, 3 * 7, 0.37);
        let (mut a, mut b) = (bench.empty(5, 3 * 4), bench.empty(5, 3 * 3));
        bench.ops.split(&x, [4, 3], &mut a, &mut b);
        let mut y = bench.empty(5, 3 * 7);
        bench.ops.join(&b, &a, [3, 4], &mut y);
        let mut some = bench.empty(5, 6);
        bench.ops.columns(&y, 8..14, &mut some);
        let mut turned = bench.empty(15, 7);
        bench.ops.transpose(&y, [5, 3, 7], &mut turned);
        let mut copied = bench.empty(2, 21);
        bench.ops.copy(&y, 2..4, &mut copied);
        [elems(y, bench), elems(some, bench), elems(turned, bench), elems(copied, bench)].concat()
    });
    agree("split_qkvz", 0.0, |bench| {
        let net = DeltaNet { n_k_heads: 2, n_v_heads: 4, head_dim: 5, key_heads: KeyHeads::Grouped };
        let x = bench.rows(3, net.qkv_width() + net.v_width(), 0.37);
        let (mut qkv, mut z) = (bench.empty(3, net.qkv_width()), bench.empty(3, net.v_width()));
        bench.ops.split_qkvz(&net, &x, &mut qkv, &mut z);
        [elems(qkv, bench), elems(z, bench)].concat()
    });
}

/// A file with one stack of matrices of a type.
fn model(tensor_type: TensorType, shape: [u64; 3]) -> Arc<MappedModel> {
    let elems = wave(shape.iter().product::<u64>() as usize, 0.813);
    let mut bytes = vec![0; (tensor_type.row_bytes(shape[2]).unwrap() * shape[0] * shape[1]) as usize];
    quant::encode_row(tensor_type, &elems, &mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stack.gguf");
    let writer = Writer::new("llama").meta("llama.block_count", 1u32);
    writer.tensor("w", &shape, tensor_type, bytes).write(&path).unwrap();
    assert!(ModelFacts::from_file(&path).is_ok());
    Arc::new(MappedModel::open(&path).unwrap())
}

#[test]
fn products_of_every_type_with_a_kernel_agree() {
    let mut n_types = 0;
    for format in FORMATS.iter().filter(|format| format.gpu_kernel.is_some() && format.has_encode()) {
        n_types += 1;
        let block = format.tensor_type.row().block_elems as usize;
        for n_cols in [block, 3 * block, 37 * block.max(2) / 2 * 2] {
            let n_cols = if block == 1 { n_cols + 6 } else { n_cols };
            let model = model(format.tensor_type, [5, 11, n_cols as u64]);
            for n in [1, 3, 9, 40] {
                agree(&format!("{} {n} x {n_cols}", format.tensor_type), 5e-4, |bench| {
                    let (x, stack) = (bench.whole(n, n_cols), bench.stack(&model));
                    let input = bench.input(&x);
                    let mut y = bench.empty(n, 11);
                    bench.ops.group_products(&[(3, 0..n as u32)], [(&stack, &mut y)], &input);
                    let whole = Weight::new(
                        bench.ops.gpus().get(bench.device).unwrap(),
                        &model,
                        &model.facts.tensors[0],
                        Some(11..24),
                    );
                    let whole = whole.unwrap();
                    let mut z = bench.empty(n, 13);
                    bench.ops.products([(&whole, &mut z)], &input);
                    let mut rows = bench.empty(2, n_cols);
                    bench.ops.rows_of(&whole, &[12, 4], &mut rows);
                    [elems(y, bench), elems(z, bench), elems(rows, bench)].concat()
                });
            }
        }
    }
    assert!(n_types >= 14, "{n_types}");
}

#[test]
fn experts_agree() {
    let model = model(TensorType::F32, [4, 6, 10]);
    agree("experts", 1e-5, |bench| {
        let ops = &bench.ops;
        let x = bench.rows(5, 10, 0.37);
        let mut routes = crate::moe::Routes::new(5, 4, 2).unwrap();
        let routing = crate::moe::Routing {
            n_experts: 4,
            n_used: 2,
            gating: crate::moe::Gating::Softmax,
            weights: crate::moe::Weights::Normalised,
            scale: 1.5,
            groups: None,
        };
        ops.route(&routing, &mut bench.rows(5, 4, 1.3), None, &mut routes);
        let input = bench.input(&x);
        let mut slot_input = Input::new(ops.gpus(), 10, 10, Rounding::Twice).unwrap();
        ops.gather(&input, routes.tokens(), &mut slot_input);
        let stack = bench.stack(&model).scaled(Some(vec![1.0, 2.0, 3.0, 4.0]));
        let mut slots = bench.empty(10, 6);
        ops.group_products(routes.groups(), [(&stack, &mut slots)], &slot_input);
        ops.add_group_bias(routes.groups(), &mut slots, Some(&bench.vector(wave(24, 0.3))));
        let mut y = bench.empty(5, 6);
        ops.combine(&slots, &routes, &mut y);
        elems(y, bench)
    });
}

#[test]
fn experts_chosen_on_the_card_are_those_the_host_chooses() {
    use crate::moe::{Gating, Groups, Routes, Routing, Weights};
    let [cpu, gpu] = &Bench::both();
    let card = gpu.ops.gpus().iter().next().unwrap();
    for (n_experts, n_used, groups) in [
        (4, 2, None),
        (33, 5, None),
        (128, 8, None),
        (64, 6, Some(Groups { n_groups: 8, n_used: 3 })),
        (6, 2, Some(Groups { n_groups: 6, n_used: 4 })),
        (3, 3, None),
    ] {
        for gating in [Gating::Softmax, Gating::Sigmoid, Gating::SoftmaxOfSelected] {
            for (weights, has_bias) in [(Weights::AsTheyAre, false), (Weights::Normalised, true)] {
                let routing = Routing { n_experts, n_used, gating, weights, scale: 1.5, groups };
                let what = format!("{routing:?}");
                let mut logits = cpu.rows(4, n_experts, 1.3);
                // Two of the best, and nothing but equals.
                logits.elems_mut()[n_experts + 1] = 9.0;
                logits.elems_mut()[n_experts + 2] = 9.0;
                logits.elems_mut()[3 * n_experts..].fill(0.25);
                let same = logits.elems().to_vec();
                let bias = has_bias.then(|| wave(n_experts, 0.9));
                let mut routes = Routes::new(4, n_experts, n_used).unwrap();
                cpu.ops.route(&routing, &mut logits, bias.clone().map(|bias| cpu.vector(bias)).as_ref(), &mut routes);
                let mut logits = gpu.empty(4, n_experts);
                logits.elems_mut().copy_from_slice(&same);
                logits.move_to(gpu.device);
                let mut on_card = crate::tensor::CardRoutes::new(gpu.ops.gpus(), 4, n_used).unwrap();
                gpu.ops.route_on_card(&routing, &logits, bias.map(|bias| gpu.vector(bias)).as_ref(), &mut on_card);
                let (mut experts, mut weights) = (vec![0u32; 4 * n_used], vec![0f32; 4 * n_used]);
                card.read_and_wait(on_card.on(card).experts, &mut experts);
                card.read_and_wait(on_card.on(card).weights, &mut weights);
                gpu.ops.check().unwrap();
                let (slots, want) = routes.pairs();
                let expert_of = |slot: &u32| routes.groups().iter().find(|(_, slots)| slots.contains(slot)).unwrap().0;
                assert_eq!(experts, slots.iter().map(expert_of).collect::<Vec<_>>(), "{what}");
                assert_near(&what, &weights, want, TOLERANCE);
            }
        }
    }
}

#[test]
fn ropes_agree() {
    for kind in [RopeKind::Norm, RopeKind::Neox] {
        for (n_rot, head_dim) in [(2, 2), (6, 10), (64, 64)] {
            agree(&format!("{kind:?} {n_rot} of {head_dim}"), TOLERANCE, |bench| {
                let options = RopeOptions {
                    kind,
                    n_rot,
                    freq_base: 10_000.0,
                    freq_factors: None,
                    scaling: RopeScaling::None,
                    magnitude: 1.1,
                };
                let mut angles = Angles::new(bench.ops.gpus(), &Rope::of(&options), 8).unwrap();
                bench.ops.set_positions(&mut angles, 1000, 5);
                let mut x = bench.rows(5, 3 * head_dim, 0.37);
                bench.ops.rope(&mut x, head_dim, &angles);
                elems(x, bench)
            });
        }
    }
}

/// Attention in steps of several lengths over a cache.
fn attend(bench: &Bench, shape: KvShape, types: KvTypes, extra: (Option<f32>, bool), steps: &[usize]) -> Vec<f32> {
    let (n_heads, key_dim, value_dim) = (2 * shape.n_kv_heads, shape.key_dim, shape.value_dim());
    let mut cache = bench.cache(CacheShape::Attention(shape), types);
    let mut scratch = AttendScratch::new(bench.ops.gpus(), n_heads, key_dim.max(value_dim)).unwrap();
    let sinks = bench.vector(wave(n_heads, 0.9));
    let (mut first_pos, mut all) = (0, Vec::new());
    let turned_back = |mut x, kv_type, dim| {
        check::turn_back(&mut x, bench.device, kv_type, dim);
        x
    };
    for &n in steps {
        let k = bench.rows(n, shape.n_kv_heads * key_dim, 0.1 + first_pos as f32 * 0.01);
        let v = bench.rows(n, shape.n_kv_heads * value_dim, 0.3 + first_pos as f32 * 0.01);
        let (k, v) = (turned_back(k, types.k, key_dim), turned_back(v, types.v, value_dim));
        let has_values = matches!(shape.values, Values::Own { .. });
        bench.ops.store(cache.layer(0), first_pos, &k, has_values.then_some(&v));
        let mut q = turned_back(bench.rows(n, n_heads * key_dim, 0.77), types.k, key_dim);
        let mut y = bench.empty(n, n_heads * value_dim);
        let (softcap, has_sinks) = extra;
        let shape = Attend { n_heads, scale: 0.2, first_pos, softcap, sinks: has_sinks.then_some(&sinks) };
        bench.ops.attend(&shape, &mut scratch, &mut q, cache.layer(0), &mut y);
        all.extend(elems(turned_back(y, types.v, value_dim), bench));
        first_pos += n;
    }
    all
}

#[test]
fn attention_agrees_with_every_type_of_cache() {
    let shape = KvShape { n_kv_heads: 2, key_dim: 64, values: Values::Own { dim: 32 }, window: None };
    for k in KV_TYPES {
        for v in KV_TYPES {
            let types = KvTypes { k, v };
            agree(&types.to_string(), 1e-5, |bench| attend(bench, shape, types, (None, false), &[3, 1, 5]));
        }
    }
}

#[test]
fn attention_agrees_in_every_form() {
    let types = KvTypes::both(KvType::F32);
    let own = |key_dim, dim, window| KvShape { n_kv_heads: 2, key_dim, values: Values::Own { dim }, window };
    for (what, shape, extra) in [
        ("odd heads", own(7, 5, None), (None, false)),
        ("a window", own(16, 16, Some(9)), (None, false)),
        ("sinks and a cap", own(128, 128, None), (Some(3.0), true)),
        ("wide heads", own(200, 256, None), (None, true)),
        (
            "latent",
            KvShape { n_kv_heads: 1, key_dim: 576, values: Values::InKeys { dim: 512 }, window: None },
            (None, false),
        ),
    ] {
        agree(what, 1e-5, |bench| attend(bench, shape, types, extra, &[5, 1, 7, 1, 8, 8, 8, 8, 1]));
    }
}

#[test]
fn long_attention_is_put_together_from_parts() {
    let shape = KvShape { n_kv_heads: 1, key_dim: 8, values: Values::Own { dim: 8 }, window: None };
    let types = KvTypes::both(KvType::F16);
    let steps: Vec<usize> = std::iter::repeat_n(8, 50).chain([1, 2]).collect();
    for sinks in [false, true] {
        agree("400 positions", 1e-5, |bench| attend(bench, shape, types, (None, sinks), &steps));
    }
}

#[test]
fn recurrent_operations_agree() {
    for dim in [5, 32, 70] {
        let net = DeltaNet { n_k_heads: 2, n_v_heads: 4, head_dim: dim, key_heads: KeyHeads::Tiled };
        let width = net.qkv_width();
        agree(&format!("delta net {dim}"), 1e-5, |bench| {
            let ops = &bench.ops;
            let n_elems = 3 * width + net.state_len();
            let mut cache = bench.cache(CacheShape::Recurrent { n_elems }, KvTypes::both(KvType::F32));
            let (taps, bias) = (bench.vector(wave(4 * width, 0.3)), bench.vector(wave(width, 0.2)));
            let mut all = Vec::new();
            for n in [3, 1, 2] {
                let mut qkv = bench.rows(n, width, 0.37);
                let convolve = Convolve { taps: &taps, bias: Some(&bias), activation: ConvActivation::Silu };
                ops.convolve(&convolve, &mut qkv, cache.layer(0));
                let (mut beta, mut alpha) = (bench.rows(n, 4, 0.5), bench.rows(n, 4, 0.6));
                let (dt_bias, a) = (bench.vector(wave(4, 0.3)), bench.vector(vec![-0.5, -1.0, -0.1, -2.0]));
                ops.delta_net_gates(&mut beta, &mut alpha, &dt_bias, &a);
                let mut y = bench.empty(n, net.v_width());
                ops.delta_net(&net, &mut qkv, [&beta, &alpha], 1e-6, cache.layer(0), &mut y);
                all.extend(elems(y, bench));
            }
            all
        });
        let shape = Scan { n_heads: 4, head_dim: 6, n_groups: 2, n_state: dim };
        agree(&format!("scan {dim}"), 1e-5, |bench| {
            let n_elems = 10 + shape.state_len();
            let mut cache = bench.cache(CacheShape::Recurrent { n_elems }, KvTypes::both(KvType::F32));
            let a = bench.vector(vec![-0.5, -1.0, -0.1, -2.0]);
            let (d, bias) = (bench.vector(wave(4, 0.3)), bench.vector(wave(4, 0.8)));
            let mut all = Vec::new();
            for n in [3, 1, 2] {
                let (xbc, mut dt) = (bench.rows(n, shape.xbc_width(), 0.37), bench.rows(n, 4, 0.5));
                bench.ops.scan_steps(&mut dt, &bias);
                let mut y = bench.empty(n, shape.x_width());
                let scan = SelectiveScan { shape: &shape, a: &a, d: &d };
                bench.ops.scan(&scan, &xbc, &dt, cache.layer(0), &mut y);
                all.extend(elems(y, bench));
            }
            all
        });
    }
}

#[test]
fn rows_are_copied_once_and_come_back() {
    let [_, bench] = Bench::both();
    let mut rows = Rows::crossing(bench.ops.gpus(), 3, 5).unwrap();
    rows.reshape(3, 5);
    rows.elems_mut().copy_from_slice(&wave(15, 0.4));
    rows.move_to(Device::Cuda(0));
    // Both have them now.
    assert_eq!(rows.elems(), wave(15, 0.4));
    bench.ops.scale(&mut rows, 2.0);
    rows.fetch();
    rows.move_to(Device::Cpu);
    assert_eq!(rows.elems(), wave(15, 0.4).iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    // Written here, they are stale there.
    rows.elems_mut().fill(1.0);
    rows.move_to(Device::Cuda(0));
    bench.ops.scale(&mut rows, 3.0);
    assert_eq!(elems(rows, &bench), [3.0; 15]);
}
