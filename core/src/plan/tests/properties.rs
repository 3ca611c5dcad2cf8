//! What holds for every model on every machine.
use proptest::prelude::*;
use tandem_engine::gguf::{TensorType, Writer};

use super::shapes::{QUANTS, SHAPES, card, facts, machine};
use super::*;
use crate::wire::{Gpu, MemoryBar, Place, Speed, Verdict};

fn used(bar: &MemoryBar) -> u64 {
    bar.parts.iter().map(|part| part.bytes).sum()
}

fn on_gpu(plan: &Plan) -> u64 {
    plan.gpu_bar.as_ref().map_or(0, used)
}

fn outline(name: &str, shape: super::shapes::Shape, quant: &str) -> Outline {
    Outline::of(&facts(name, shape, quant)).unwrap()
}

fn engine() -> impl Strategy<Value = Engine> {
    prop_oneof![Just(Engine::CpuOnly), Just(Engine::WithGpu)]
}

fn is_sane(speed: &Speed) -> bool {
    let Speed {
        generation_low_tokens_per_s: low,
        generation_tokens_per_s: likely,
        generation_high_tokens_per_s: high,
        generation_full_tokens_per_s: full,
        prompt_low_tokens_per_s: prompt_low,
        prompt_tokens_per_s: prompt,
        prompt_high_tokens_per_s: prompt_high,
    } = *speed;
    let is_sane = |low: f64, likely: f64, high: f64| low > 0.0 && low <= likely && likely <= high && high.is_finite();
    full > 0.0 && full.is_finite() && is_sane(low, likely, high) && is_sane(prompt_low, prompt, prompt_high)
}

/// Budgets, sums and texts of any plan.
fn check(plan: &Plan, hardware: &Hardware) {
    let available = hardware.ram_available_bytes;
    assert!(used(&plan.ram_bar) <= available + plan.ram_bar.shortfall_bytes, "over the memory there is: {plan:?}");
    if let Some(bar) = &plan.gpu_bar {
        assert!(bar.others_bytes + used(bar) < bar.capacity_bytes, "over the card: {plan:?}");
    } else {
        assert_eq!(plan.n_gpu_layers, 0);
    }
    let lines = |is_there: fn(Place) -> bool| -> u64 {
        plan.lines.iter().filter(|line| is_there(line.place)).map(|line| line.bytes).sum()
    };
    assert_eq!(lines(|place| place == Place::Ram), used(&plan.ram_bar), "lines and bar say the same");
    let on_card = if plan.cpu_computes.is_none() { on_gpu(plan) } else { 0 };
    assert_eq!(lines(|place| matches!(place, Place::Gpu { .. })), on_card, "lines and bar of the card say the same");
    assert_eq!(plan.layers.len(), plan.n_layers as usize);
    let seconds = plan.token_costs.iter().map(|cost| cost.ms).sum::<f64>() / 1e3;
    let off = seconds * plan.speed.generation_tokens_per_s - 1.0;
    assert!(off.abs() < 1e-6, "costs are as long as the rate says: {plan:?}");
    assert!(plan.n_gpu_layers <= plan.n_layers + 2 && plan.n_cpu_moe_layers <= plan.n_layers);
    assert!((1..=plan.max_context_length.max(1)).contains(&plan.context_length));
    assert!(plan.n_threads >= 1 && plan.n_batch >= 1);
    assert!(is_sane(&plan.speed), "{:?}", plan.speed);
    let lines = plan.lines.iter().flat_map(|line| [&line.what, &line.why]);
    let choices = plan.choices.iter().flat_map(|choice| [&choice.what, &choice.why]);
    for text in lines.chain(choices).chain(&plan.warnings).chain([&plan.headline]) {
        assert!(!text.en.is_empty() && !text.zh.is_empty(), "a text in one language: {plan:?}");
        assert!(!text.en.contains("NaN") && !text.en.contains("inf"), "{text:?}");
    }
}

/// Where the split is ours to choose, a longer context is no faster. A split that somebody fixed is left as little as
/// the context allows, and the layers that a longer one pushes onto the card may make it faster.
fn check_contexts(plan: &Plan) {
    for pair in plan.contexts.windows(2) {
        let (short, long) = (&pair[0], &pair[1]);
        assert!(
            rank(long.verdict) <= rank(short.verdict),
            "a longer context has no better verdict: {:?}",
            plan.contexts
        );
        let is_same_cache = short.kv_type == long.kv_type && long.verdict != Verdict::TooLarge;
        if is_same_cache {
            let (rate, longer) = (short.generation_tokens_per_s, long.generation_tokens_per_s);
            assert!(longer <= rate * 1.000_001, "a longer context is no faster: {:?}", plan.contexts);
            assert!(long.n_layers_on_gpu <= short.n_layers_on_gpu, "it has no more layers: {:?}", plan.contexts);
        }
    }
}

fn rank(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::TooLarge => 0,
        Verdict::Tight => 1,
        Verdict::Slow => 2,
        Verdict::RunsWell => 3,
        Verdict::Fast => 4,
    }
}

proptest! {
    // Each case plans several times, and each plan lays out a dozen contexts.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_real_shape_goes_over_any_budget(
        shape in 0..SHAPES.len(), quant in 0..QUANTS.len(), vram in 0.0f64..32.0, ram in 0.3f64..64.0,
        context in proptest::option::of(1u32..300_000), layers in proptest::option::of(0u32..60),
        experts in proptest::option::of(0u32..60), engine in engine(),
    ) {
        let (name, shape) = SHAPES[shape];
        let outline = outline(name, shape, QUANTS[quant].0);
        let hardware = machine((vram > 1.0).then_some(vram), ram + 4.0, ram);
        let wishes =
            Wishes { context_length: context, n_gpu_layers: layers, n_expert_layers: experts, ..Wishes::default() };
        if let Ok(plan) = plan_outline(&outline, &hardware, &wishes, engine) {
            check(&plan, &hardware);
            if layers.is_none() && experts.is_none() {
                check_contexts(&plan);
            }
        }
    }

    /// What is chosen where nobody wishes anything is no worse than the same as a wish.
    #[test]
    fn no_wish_gets_as_good_a_verdict_as_its_own_choice_wished(
        shape in 0..SHAPES.len(), quant in 0..QUANTS.len(), vram in 0.0f64..16.0, ram in 0.3f64..48.0, engine in engine(),
    ) {
        let (name, shape) = SHAPES[shape];
        let outline = outline(name, shape, QUANTS[quant].0);
        let hardware = machine((vram > 1.0).then_some(vram), ram + 4.0, ram);
        let of = |wishes: &Wishes| plan_outline(&outline, &hardware, wishes, engine);
        if let Ok(free) = of(&Wishes::default()) {
            let wished = of(&Wishes { context_length: Some(free.context_length), ..Wishes::default() }).unwrap();
            let is_too_large = |plan: &Plan| plan.verdict == Verdict::TooLarge;
            prop_assert!(!is_too_large(&free) || is_too_large(&wished), "{} but {}", free.headline.en, wished.headline.en);
            prop_assert!(free.ram_bar.shortfall_bytes <= wished.ram_bar.shortfall_bytes);
        }
    }

    #[test]
    fn more_vram_never_puts_less_on_the_card(
        shape in 0..SHAPES.len(), quant in 0..QUANTS.len(), vram in 1.0f64..32.0, more in 0.0f64..16.0,
    ) {
        let (name, shape) = SHAPES[shape];
        let facts = facts(name, shape, QUANTS[quant].0);
        let of = |vram| free(&facts, &machine(Some(vram), 128.0, 120.0));
        let (small, large) = (of(vram), of(vram + more));
        prop_assert!(on_gpu(&small) <= on_gpu(&large));
        prop_assert!(small.n_gpu_layers <= large.n_gpu_layers);
        if small.n_gpu_layers == large.n_gpu_layers {
            prop_assert!(small.n_cpu_moe_layers >= large.n_cpu_moe_layers);
        }
    }

    #[test]
    fn more_ram_never_makes_it_slower_or_shorter(
        shape in 0..SHAPES.len(), quant in 0..QUANTS.len(), ram in 0.2f64..64.0, more in 0.0f64..32.0,
    ) {
        let (name, shape) = SHAPES[shape];
        let facts = facts(name, shape, QUANTS[quant].0);
        let of = |ram| plan(&facts, &machine(None, 128.0, ram), &Wishes::default());
        if let Ok(small) = of(ram) {
            let large = of(ram + more).expect("what fits in less fits in more");
            prop_assert!(small.context_length <= large.context_length);
            prop_assert!(small.ram_bar.shortfall_bytes >= large.ram_bar.shortfall_bytes);
            let (slow, fast) = (small.speed.generation_tokens_per_s, large.speed.generation_tokens_per_s);
            // A smaller cache is read quicker; more memory gives it back its precision.
            prop_assert!(slow <= fast * 1.000_001 || small.kv_type != large.kv_type, "{slow} and {fast}");
        }
    }

    #[test]
    fn a_longer_context_never_frees_memory_or_makes_it_faster(
        shape in 0..SHAPES.len(), quant in 0..QUANTS.len(), context in 1u32..131_072, more in 0u32..65_536,
        vram in 3.0f64..24.0, kv in 0..3usize, engine in engine(),
    ) {
        let (name, shape) = SHAPES[shape];
        let outline = outline(name, shape, QUANTS[quant].0);
        let of = |context| {
            let kv_type = Some(["f16", "q8_0", "q4_0"][kv].to_owned());
            let wishes = Wishes { context_length: Some(context), kv_type, ..Wishes::default() };
            plan_outline(&outline, &machine(Some(vram), 128.0, 120.0), &wishes, engine).unwrap()
        };
        let (short, long) = (of(context), of(context + more));
        prop_assert!(short.context_length <= long.context_length);
        if engine == Engine::CpuOnly {
            prop_assert!(used(&short.ram_bar) <= used(&long.ram_bar));
        }
        let (slow, fast) = (long.speed.generation_tokens_per_s, short.speed.generation_tokens_per_s);
        prop_assert!(slow <= fast * 1.000_001, "{slow} and {fast}");
    }

    #[test]
    fn absurd_headers_and_machines_never_overflow(
        n_layers in 1u32..512, context in any::<u32>(), experts in 0u32..1024, used in any::<u32>(),
        heads in any::<u32>(), kv_heads in any::<u32>(), length in any::<u32>(), window in any::<u32>(),
        ssm in any::<u32>(), rows in 1u64..1 << 40, names in proptest::collection::vec(0..NAMES.len(), 1..8),
        cores in any::<u32>(), allowed in any::<u32>(), vram in any::<u64>(), ram in any::<u64>(),
        wish in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
    ) {
        let mut writer = Writer::new("llama").meta("llama.block_count", n_layers);
        for (key, value) in [
            ("context_length", context), ("expert_count", experts), ("expert_used_count", used),
            ("attention.head_count", heads), ("attention.head_count_kv", kv_heads),
            ("attention.key_length", length), ("attention.sliding_window", window),
            ("ssm.conv_kernel", ssm), ("ssm.inner_size", ssm), ("ssm.group_count", ssm), ("ssm.state_size", ssm),
        ] {
            writer = writer.meta(&format!("llama.{key}"), value);
        }
        for (i, name) in names.iter().enumerate() {
            let name = NAMES[*name].replace('#', &(i % 3).to_string());
            writer = writer.tensor_absent(&format!("{name}.{i}"), &[1, 2], TensorType::F32);
            writer = writer.tensor_absent(&name_once(&name, i), &[rows, 32], TensorType::Q8_0);
        }
        let Ok((header, file_bytes)) = writer.header() else { return Ok(()) };
        let Ok(tandem_engine::gguf::Prefix::Complete(facts)) = ModelFacts::from_prefix(&header, file_bytes) else {
            return Ok(());
        };
        let mut hardware = machine(None, 16.0, 12.0);
        (hardware.ram_total_bytes, hardware.ram_available_bytes) = (ram, ram);
        hardware.gpus = vec![Gpu { vram_total_bytes: vram, vram_free_bytes: vram, ..card(0, 1.0, 1.0) }];
        (hardware.cpu.n_performance_cores, hardware.cpu.n_allowed_cores) = (cores, allowed);
        let wishes = Wishes { context_length: wish.0, n_gpu_layers: wish.1, n_threads: wish.2, ..Wishes::default() };
        if let Ok(plan) = plan(&facts, &hardware, &wishes) {
            prop_assert!(is_sane(&plan.speed), "{:?}", plan.speed);
            prop_assert!(on_gpu(&plan) <= vram);
        }
    }
}

const NAMES: &[&str] = &[
    "token_embd.weight",
    "output.weight",
    "blk.#.attn_k.weight",
    "blk.#.attn_v.weight",
    "blk.#.attn_qkv.weight",
    "blk.#.attn_kv_a_mqa.weight",
    "blk.#.ssm_conv1d.weight",
    "blk.#.shortconv.conv.weight",
    "blk.#.ffn_up.weight",
    "blk.#.ffn_up_exps.weight",
    "blk.18446744073709551615.attn_k.weight",
    "something.else",
];

/// A name may occur once in a file.
fn name_once(name: &str, i: usize) -> String {
    if i < 3 { name.to_owned() } else { format!("{name}{i}") }
}
