//! Plans of real-shape headers on machines of all sizes: tables, properties, and a few as people read them.
mod matrix;
mod properties;
mod shapes;
mod snapshots;
mod tables;
mod warnings;

use super::*;
use crate::error::Explain;
use crate::wire::{Aim, CostKind, ErrorCode, FileUse, Keeps, Part, Place, Text, Tuned, Verdict};
use shapes::{GIB, LLAMA_1B, LLAMA_8B, QWEN3_30B, QWEN36_35B, SMOLLM2, card, facts, machine};
use tandem_engine::kv::{KvType, KvTypes};

fn free(facts: &ModelFacts, hardware: &Hardware) -> Plan {
    plan(facts, hardware, &Wishes::default()).unwrap()
}

fn with_engine(facts: &ModelFacts, hardware: &Hardware, engine: Engine) -> Plan {
    plan_outline(&Outline::of(facts).unwrap(), hardware, &Wishes::default(), engine).unwrap()
}

/// A plan of a small model on a roomy machine.
pub(crate) fn example() -> Plan {
    free(&example_facts(), &machine(None, 16.0, 12.0))
}

/// The model of `example`.
pub(super) fn example_facts() -> ModelFacts {
    facts("SmolLM2-135M", SMOLLM2, "Q4_K_M")
}

/// The model of `with_card`.
pub(super) fn with_card_facts() -> ModelFacts {
    facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M")
}

/// Plans of a model with experts on a machine whose card of 12 GB computes.
pub(crate) fn with_card() -> impl Fn(&Wishes) -> Plan {
    let outline = Outline::of(&with_card_facts()).unwrap();
    let hardware = machine(Some(12.0), 32.0, 28.0);
    move |wishes| plan_outline(&outline, &hardware, wishes, Engine::WithGpu).unwrap()
}

/// A machine whose card does not compute.
fn with_idle_card(vram: f64, ram: f64, free: f64) -> Hardware {
    let mut hardware = machine(Some(vram), ram, free);
    hardware.gpus[0].unusable = Some(Text::new("no NVIDIA driver is installed", "未安装 NVIDIA 驱动"));
    hardware
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB as f64
}

#[test]
fn synthetic_headers_weigh_what_the_published_files_do() {
    for (name, shape, quant, published_gb) in [
        ("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M", 21.3),
        ("Qwen3.6-35B-A3B", QWEN36_35B, "Q8_0", 37.0),
        ("Qwen3-30B-A3B", QWEN3_30B, "Q4_K_M", 18.6),
        ("Llama-3.1-8B", LLAMA_8B, "Q4_K_M", 4.92),
        ("Llama-3.1-8B", LLAMA_8B, "Q8_0", 8.54),
    ] {
        let got_gb = facts(name, shape, quant).file_bytes as f64 / 1e9;
        let ratio = got_gb / published_gb;
        assert!((0.95..1.05).contains(&ratio), "{name} {quant}: {got_gb:.1} GB, published {published_gb}");
    }
}

#[test]
fn kv_cache_follows_each_layers_kind() {
    // Bytes per token in f16, and state per sequence: from the hyperparameters, by hand.
    for (name, shape, per_token, state) in [
        ("Qwen3.6-35B-A3B", QWEN36_35B, 20_480, 30 * 4 * (3 * 8192 + 128 * 4096)),
        ("Qwen3-30B-A3B", QWEN3_30B, 98_304, 0),
        ("Llama-3.1-8B", LLAMA_8B, 131_072, 0),
        ("SmolLM2-135M", SMOLLM2, 30 * 2 * 3 * 64 * 2, 0),
    ] {
        let plan = free(&facts(name, shape, "Q4_K_M"), &machine(None, 64.0, 60.0));
        let kv = plan.lines.iter().find(|line| line.part == Part::Kv).unwrap();
        assert_eq!(kv.bytes, per_token * 8192 + state, "{name}");
    }
}

#[test]
fn a_token_reads_its_weights_and_the_cache_behind_it() {
    // Cache in bytes per position, and state read and written: from the hyperparameters, by hand. Weights: 8 of 128
    // experts of 48 layers, everything else but the embeddings, from the published file's sizes.
    for (name, shape, n_positions, cache, weights_gb) in [
        ("Llama-3.1-8B", LLAMA_8B, 1000, 131_072_000, 4.6),
        ("Qwen3-30B-A3B", QWEN3_30B, 1, 98_304, 1.92),
        ("Qwen3.6-35B-A3B", QWEN36_35B, 10, 204_800 + 2 * 30 * 4 * (3 * 8192 + 128 * 4096), 1.9),
    ] {
        let facts = facts(name, shape, "Q4_K_M");
        let reads = TokenReads::of(&facts, n_positions, KvTypes::both(KvType::F16)).unwrap();
        assert_eq!(reads.cache_bytes, cache, "{name}");
        let ratio = reads.weights_bytes as f64 / 1e9 / weights_gb;
        assert!((0.9..1.1).contains(&ratio), "{name}: {} bytes", reads.weights_bytes);
        let small = TokenReads::of(&facts, 64, KvTypes::both(KvType::Q8_0)).unwrap();
        let large = TokenReads::of(&facts, 64, KvTypes::both(KvType::F32)).unwrap();
        assert!(small.cache_bytes < large.cache_bytes && small.weights_bytes == large.weights_bytes, "{name}");
    }
}

#[test]
fn layers_that_predict_further_ahead_take_nothing() {
    let machine = machine(Some(8.0), 32.0, 28.0);
    let plain = free(&facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M"), &machine);
    let ahead = free(&shapes::facts_with_layer_ahead("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M"), &machine);
    assert_eq!(ahead.n_layers, QWEN36_35B.n_layers);
    let in_memory =
        |plan: &Plan| plan.lines.iter().filter(|line| line.place != Place::Disk).cloned().collect::<Vec<_>>();
    // The header that lists them is a bit longer.
    let weights = |plan: &Plan| {
        let lines = in_memory(plan).into_iter().filter(|line| line.part != Part::Buffers);
        lines.map(|line| (line.part, line.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(weights(&ahead), weights(&plain));
}

/// llama.cpp counts such a layer among those of `-ngl`, from the end.
#[test]
fn layers_that_predict_further_ahead_count_in_llama_cpps_terms() {
    let ahead = shapes::facts_with_layer_ahead("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let plain = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let roomy = machine(Some(32.0), 32.0, 28.0);
    for (facts, expected) in [(&ahead, 42), (&plain, 41)] {
        for engine in [Engine::WithGpu, Engine::CpuOnly] {
            let plan = with_engine(facts, &roomy, engine);
            assert_eq!(plan.n_gpu_layers, expected);
            assert!(plan.llama_cpp_command.contains(&format!("-ngl {expected} ")), "{}", plan.llama_cpp_command);
        }
        let wish = Wishes { n_gpu_layers: Some(expected - 31), context_length: Some(4096), ..Wishes::default() };
        let split = plan_outline(&Outline::of(facts).unwrap(), &roomy, &wish, Engine::WithGpu).unwrap();
        let n_there = split.layers.iter().filter(|layer| layer.mixer != Place::Ram).count();
        assert_eq!((split.n_gpu_layers, n_there), (expected - 31, 9));
        assert_eq!(split.warnings.len(), 0, "{:?}", split.warnings);
    }
}

/// The command is for llama.cpp, which uses the card whether this version does or not.
#[test]
fn the_command_is_the_same_whether_the_engine_uses_the_card_or_not() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    for (vram, ram, free) in [(24.0, 8.0, 5.0), (6.0, 24.0, 20.0), (8.0, 32.0, 28.0)] {
        let machine = machine(Some(vram), ram, free);
        let command = |engine| with_engine(&facts, &machine, engine).llama_cpp_command;
        assert_eq!(command(Engine::CpuOnly), command(Engine::WithGpu), "{vram} + {ram}");
        assert!(command(Engine::WithGpu).contains("-np 1"), "one conversation's states and windows");
    }
    assert!(with_engine(&facts, &machine(Some(24.0), 8.0, 5.0), Engine::CpuOnly).llama_cpp_command.contains("-c 8192"));
}

#[test]
fn a_short_memory_gets_a_smaller_cache_before_weights_leave_it() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    let roomy = plan(&facts, &machine(None, 16.0, 14.0), &Wishes { context_length: Some(2048), ..Wishes::default() });
    let taken: u64 = roomy.unwrap().ram_bar.parts.iter().map(|part| part.bytes).sum();
    let mut hardware = machine(None, 16.0, 14.0);
    hardware.ram_available_bytes = taken - 1;
    let plan = free(&facts, &hardware);
    assert_eq!((plan.context_length, plan.kv_type.as_str(), plan.ram_bar.shortfall_bytes), (2048, "q8_0", 0));
    assert_eq!(plan.verdict, Verdict::Tight);
    assert!(check_loadable(&plan).is_ok());
}

/// Layers as they lie, and the time of a token as the rate says.
#[test]
fn layers_and_costs_follow_the_placement() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let gpu = Place::Gpu { index: 0 };
    let plan = with_engine(&facts, &machine(Some(6.0), 32.0, 28.0), Engine::WithGpu);
    let n_experts = (plan.n_layers - plan.n_cpu_moe_layers) as usize;
    assert!(plan.layers.iter().all(|layer| layer.mixer == gpu && layer.cache == gpu));
    let (below, above) = plan.layers.split_at(plan.layers.len() - n_experts);
    assert!(below.iter().all(|layer| layer.experts == Some(Place::Ram)));
    assert!(above.iter().all(|layer| layer.experts == Some(gpu)) && !above.is_empty());
    let keeps: Vec<_> = plan.layers.iter().take(4).map(|layer| layer.keeps).collect();
    assert_eq!(keeps, [Keeps::State, Keeps::State, Keeps::State, Keeps::All]);
    let cost = |kind| plan.token_costs.iter().find(|cost| cost.kind == kind).map(|cost| cost.ms);
    assert!(cost(CostKind::Gpu).is_some() && cost(CostKind::HandOver).is_some() && cost(CostKind::Disk).is_none());
    let hand_over = plan.token_costs.iter().find(|cost| cost.kind == CostKind::HandOver).unwrap();
    assert_eq!(hand_over.what.en, format!("Handing over, {} times", plan.n_cpu_moe_layers));

    let now = with_engine(&facts, &machine(Some(6.0), 32.0, 28.0), Engine::CpuOnly);
    assert!(now.layers.iter().all(|layer| layer.mixer == Place::Ram && layer.experts == Some(Place::Ram)));
    assert!(now.lines.iter().all(|line| matches!(line.place, Place::Ram | Place::Disk)));
    assert!(now.gpu_bar.is_some(), "what the card will take over is shown beside");
}

/// A fake card: the engine's placement is the plan's, budgets and all.
#[test]
fn a_plan_with_a_card_that_computes_is_loaded_as_it_says() {
    use tandem_engine::place::{Device, Ffn};
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let plan = with_engine(&facts, &machine(Some(6.0), 32.0, 28.0), Engine::WithGpu);
    let options = load_options(&plan).unwrap();
    let placement = &options.placement;
    assert_eq!(placement.devices(), [Device::Cpu, Device::Cuda(0)]);
    assert_eq!((placement.embed, placement.head), (Device::Cpu, Device::Cuda(0)));
    let on_card = |ffn: &Ffn| ffn.routed() == Device::Cuda(0);
    let n_there = placement.layers.iter().filter(|layer| on_card(&layer.ffn)).count() as u32;
    assert_eq!(n_there, plan.n_layers - plan.n_cpu_moe_layers);
    assert!(placement.layers.iter().all(|layer| layer.mixer == Device::Cuda(0) && layer.kv == Device::Cuda(0)));
    let budgets: Vec<_> = options.budgets.iter().map(|budget| (budget.device, budget.bytes)).collect();
    assert_eq!(budgets, [(Device::Cpu, 28 * GIB), (Device::Cuda(0), 11 * GIB / 2)]);
}

#[test]
fn fewer_expert_layers_on_the_card_are_a_wish_that_holds() {
    let plan_with = with_card();
    let free = plan_with(&Wishes::default());
    let most = free.n_layers - free.n_cpu_moe_layers;
    assert!(most > 5);
    for n in [0, 1, 5, most, 99] {
        let plan = plan_with(&Wishes { n_expert_layers: Some(n), ..Wishes::default() });
        assert_eq!(plan.n_layers - plan.n_cpu_moe_layers, n.min(most));
        assert_eq!(plan.context_length, free.context_length);
        assert!(plan.speed.generation_tokens_per_s <= free.speed.generation_tokens_per_s * 1.000_001);
    }
}

#[test]
fn dense_parts_go_on_the_card_before_any_expert() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    for (vram, n_gpu_layers, experts_on_gpu) in
        [(4.0, 41, 0..=2), (6.0, 41, 3..=7), (8.0, 41, 7..=12), (24.0, 41, 40..=40)]
    {
        let plan = free(&facts, &machine(Some(vram), 32.0, 28.0));
        assert_eq!(plan.n_gpu_layers, n_gpu_layers, "{vram} GB");
        let experts = plan.n_layers - plan.n_cpu_moe_layers;
        assert!(experts_on_gpu.contains(&experts), "{vram} GB: experts of {experts} layers on the card");
    }
}

#[test]
fn a_card_too_small_for_all_dense_parts_takes_some_and_no_experts() {
    let facts = facts("Qwen3-30B-A3B", QWEN3_30B, "Q4_K_M");
    let plan = with_engine(&facts, &machine(Some(3.0), 32.0, 28.0), Engine::WithGpu);
    assert!((2..49).contains(&plan.n_gpu_layers), "{}", plan.n_gpu_layers);
    assert!(plan.lines.iter().all(|line| line.part != Part::Experts || line.place == Place::Ram));
}

#[test]
fn dense_models_are_split_by_whole_layers() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    for (vram, expected) in [(2.0, 0..=3), (4.0, 8..=16), (6.0, 20..=28), (8.0, 33..=33), (24.0, 33..=33)] {
        let plan = free(&facts, &machine(Some(vram), 32.0, 28.0));
        assert!(expected.contains(&plan.n_gpu_layers), "{vram} GB: {}", plan.n_gpu_layers);
        assert_eq!(plan.n_cpu_moe_layers, 0);
    }
}

#[test]
fn the_card_with_most_free_memory_is_taken() {
    let mut hardware = machine(None, 32.0, 28.0);
    hardware.gpus = vec![card(0, 24.0, 2.0), card(1, 16.0, 15.0), card(2, 8.0, 7.5)];
    let plan = with_engine(&facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M"), &hardware, Engine::WithGpu);
    assert!(plan.lines.iter().any(|line| line.place == Place::Gpu { index: 1 }));
    assert!(plan.lines.iter().all(|line| matches!(line.place, Place::Ram | Place::Disk | Place::Gpu { index: 1 })));
    assert!(plan.llama_cpp_command.contains("-sm none -mg 1"), "{}", plan.llama_cpp_command);
    assert_eq!(plan.n_gpu_layers, 33);
}

#[test]
fn threads_are_the_performance_cores_that_are_allowed() {
    for (n_physical, n_performance, n_logical, n_allowed, expected) in
        [(6, 6, 12, 12, 6), (12, 8, 20, 20, 8), (20, 8, 20, 20, 8), (8, 8, 16, 3, 3), (2, 2, 2, 1, 1), (0, 0, 0, 0, 1)]
    {
        let mut hardware = machine(None, 16.0, 12.0);
        let cpu = &mut hardware.cpu;
        (cpu.n_physical_cores, cpu.n_performance_cores) = (n_physical, n_performance);
        (cpu.n_logical_cores, cpu.n_allowed_cores) = (n_logical, n_allowed);
        let plan = free(&facts("SmolLM2-135M", SMOLLM2, "Q4_K_M"), &hardware);
        assert_eq!(plan.n_threads, expected);
    }
}

#[test]
fn context_shrinks_before_weights_leave_memory_and_a_wish_holds() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    let weights = gib(facts.file_bytes);
    let context = |spare: f64, wish: Option<u32>| {
        let wishes = Wishes { context_length: wish, ..Wishes::default() };
        plan(&facts, &machine(None, 16.0, weights + spare), &wishes).map(|plan| plan.context_length)
    };
    assert_eq!(context(2.0, None).unwrap(), 8192);
    assert_eq!(context(1.0, None).unwrap(), 4096);
    assert_eq!(context(0.5, None).unwrap(), 2048);
    assert_eq!(context(0.2, None).unwrap(), 2048, "partly from disk");
    assert_eq!(context(1.0, Some(16_384)).unwrap(), 16_384, "a wish may cost speed");
    assert_eq!(context(2.0, Some(500)).unwrap(), 500);
}

#[test]
fn a_wish_that_cannot_be_met_gets_the_nearest_plan_and_a_warning() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    let hardware = with_idle_card(4.0, 14.5, 14.0);
    for (wishes, check) in [
        (
            Wishes { context_length: Some(1 << 20), ..Wishes::default() },
            (|plan: &Plan| plan.context_length == 131_072 && plan.kv_type == "q8_0") as fn(&Plan) -> bool,
        ),
        (Wishes { n_gpu_layers: Some(99), ..Wishes::default() }, |plan| plan.n_gpu_layers < 33),
        (Wishes { n_threads: Some(64), ..Wishes::default() }, |plan| plan.n_threads == 12),
        (Wishes { n_threads: Some(0), ..Wishes::default() }, |plan| plan.n_threads == 1),
        (Wishes { kv_type: Some("q3_0".into()), ..Wishes::default() }, |plan| plan.kv_type == "f16"),
    ] {
        let plan = plan(&facts, &hardware, &wishes).unwrap();
        assert!(check(&plan), "{wishes:?}: {plan:?}");
        assert_eq!(plan.warnings.len(), 1, "{wishes:?}: {:?}", plan.warnings);
    }
    let wishes = Wishes { n_gpu_layers: Some(0), ..Wishes::default() };
    let plan = plan(&facts, &hardware, &wishes).unwrap();
    assert_eq!((plan.n_gpu_layers, plan.gpu_bar, plan.warnings.len()), (0, None, 0));
}

#[test]
fn what_the_processor_does_now_sets_verdict_memory_and_speed() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    let with_card = free(&facts, &with_idle_card(24.0, 32.0, 28.0));
    let without = free(&facts, &machine(None, 32.0, 28.0));
    assert!(with_card.cpu_computes.is_some() && without.cpu_computes.is_none());
    assert_eq!(with_card.speed, without.speed);
    assert_eq!(with_card.verdict, without.verdict);
    assert_eq!(with_card.ram_bar, without.ram_bar);
}

#[test]
fn a_card_that_computes_is_planned_with_and_the_one_that_does_not_says_why() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let mut hardware = machine(Some(24.0), 32.0, 28.0);
    assert!(free(&facts, &hardware).layers.iter().all(|layer| layer.mixer == Place::Gpu { index: 0 }));
    let idle = free(&facts, &with_idle_card(24.0, 32.0, 28.0));
    assert!(idle.layers.iter().all(|layer| layer.mixer == Place::Ram));
    assert!(idle.cpu_computes.unwrap().en.starts_with("The graphics card is not used: no NVIDIA driver is installed."));
    // The one that computes, though the other one has more memory.
    hardware.gpus = vec![with_idle_card(24.0, 32.0, 28.0).gpus[0].clone(), card(1, 8.0, 8.0)];
    assert!(free(&facts, &hardware).layers.iter().all(|layer| layer.mixer == Place::Gpu { index: 1 }));
}

#[test]
fn weights_that_a_card_cannot_multiply_stay_in_memory_and_it_is_said() {
    let roomy = machine(Some(24.0), 64.0, 60.0);
    let foreign = |is_foreign: fn(&str) -> bool| {
        let mut facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
        for tensor in facts.tensors.iter_mut().filter(|tensor| is_foreign(&tensor.name)) {
            tensor.tensor_type = tandem_engine::gguf::TensorType::TQ2_0;
        }
        free(&facts, &roomy)
    };
    let experts = foreign(|name| name.contains("_exps"));
    assert!(experts.layers.iter().all(|layer| layer.mixer != Place::Ram && layer.experts == Some(Place::Ram)));
    assert!(experts.warnings.iter().any(|text| text.en.starts_with("Weights in TQ2_0 stay")), "{:?}", experts.warnings);
    let lower = foreign(|name| name.starts_with("blk.9.attn_"));
    let on_card: Vec<bool> = lower.layers.iter().map(|layer| layer.mixer != Place::Ram).collect();
    assert!(on_card[..10].iter().all(|there| !there) && on_card[10..].iter().all(|there| *there), "{on_card:?}");
    let head = foreign(|name| name == "output.weight");
    assert!(head.gpu_bar.is_none() && head.layers.iter().all(|layer| layer.mixer == Place::Ram));
}

#[test]
fn verdicts_follow_speed_and_room() {
    for (name, shape, quant, ram, expected) in [
        ("SmolLM2-135M", SMOLLM2, "Q4_K_M", 8.0, Verdict::Fast),
        ("Llama-3.2-1B", LLAMA_1B, "Q4_K_M", 8.0, Verdict::Fast),
        ("Qwen3-30B-A3B", QWEN3_30B, "Q4_K_M", 32.0, Verdict::RunsWell),
        ("Llama-3.1-8B", LLAMA_8B, "Q4_K_M", 16.0, Verdict::Slow),
        ("Llama-3.1-8B", LLAMA_8B, "Q4_K_M", 5.2, Verdict::Tight),
        ("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M", 20.0, Verdict::Tight),
        ("Llama-3.1-8B", LLAMA_8B, "F16", 8.0, Verdict::TooLarge),
    ] {
        let plan = free(&facts(name, shape, quant), &machine(None, ram + 4.0, ram));
        assert_eq!(plan.verdict, expected, "{name} {quant} with {ram} GB: {}", plan.headline.en);
    }
}

#[test]
fn a_plan_that_only_keeps_the_disk_busy_is_not_loaded() {
    let plan = free(&facts("Llama-3.1-8B", LLAMA_8B, "F16"), &machine(None, 12.0, 8.0));
    let failure = check_loadable(&plan).unwrap_err().explain();
    assert_eq!(failure.code, ErrorCode::OutOfMemory);
    assert!(failure.message.en.contains("short") && failure.message.zh.contains("还差"), "{failure:?}");
    let slow = free(&facts("Llama-3.1-8B", LLAMA_8B, "F16"), &machine(None, 32.0, 28.0));
    assert!(check_loadable(&slow).is_ok());
}

#[test]
fn a_plan_is_loaded_on_the_processor_as_it_says() {
    use tandem_engine::kv::{KvType, KvTypes};
    use tandem_engine::model::{CHECKPOINT_BYTES, Preload};
    use tandem_engine::place::Device;
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    let plan = free(&facts, &with_idle_card(8.0, 32.0, 28.0));
    let options = load_options(&plan).unwrap();
    assert_eq!(options.placement.devices(), [Device::Cpu]);
    assert_eq!((options.placement.layers.len(), options.n_threads, options.context_length), (40, 6, 8192));
    assert_eq!((options.kv_types, options.preload), (KvTypes::both(KvType::F16), Preload::Weights));
    assert_eq!(options.budgets[0].bytes, 28 * GIB);
    assert_eq!(options.checkpoint_bytes, CHECKPOINT_BYTES);
    let short = free(&facts, &machine(None, 24.0, 18.0));
    let options = load_options(&short).unwrap();
    assert_eq!((options.preload, options.checkpoint_bytes), (Preload::Nothing, CHECKPOINT_BYTES / 4));
    let apart = Plan { kv_type: "q8_0/q4_0".into(), ..plan.clone() };
    assert_eq!(load_options(&apart).unwrap().kv_types, KvTypes { k: KvType::Q8_0, v: KvType::Q4_0 });
    let foreign = Plan { kv_type: "q3_0".into(), ..plan };
    assert_eq!(load_options(&foreign).unwrap_err().explain().code, ErrorCode::BadRequest);
}

#[test]
fn no_room_for_the_cache_is_refused_with_what_is_missing() {
    let facts = facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M");
    let refusal = plan(&facts, &machine(None, 8.0, 0.2), &Wishes::default()).unwrap_err();
    assert!(matches!(refusal, PlanRefusal::NoRoom { context: 2048, missing_bytes: 1.., .. }), "{refusal:?}");
    let failure = refusal.explain();
    assert_eq!(failure.code, ErrorCode::OutOfMemory);
    assert!(!failure.message.zh.is_empty() && !failure.hint.en.is_empty() && !failure.hint.zh.is_empty());
}

/// What the engine runs can be planned, odd headers among them.
#[test]
fn every_architecture_gets_a_plan() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/data/arch");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let models: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "gguf")).collect();
    assert!(models.len() > 50, "{} models", models.len());
    for path in models {
        let facts = tandem_engine::gguf::ModelFacts::from_file(&path).unwrap();
        let planned = plan(&facts, &machine(None, 16.0, 12.0), &Wishes::default());
        assert!(planned.is_ok(), "{}: {}", path.display(), planned.unwrap_err());
    }
}

#[test]
fn headers_without_what_a_plan_needs_are_refused() {
    let writer = || tandem_engine::gguf::Writer::new("llama");
    let no_layers = shapes::read(&writer().meta("llama.context_length", 4096u32), "a.gguf");
    let no_context = shapes::read(&writer().meta("llama.block_count", 2u32), "a.gguf");
    let no_weights =
        shapes::read(&writer().meta("llama.block_count", 2u32).meta("llama.context_length", 4096u32), "a.gguf");
    let hardware = machine(None, 16.0, 12.0);
    let refusal = |facts| plan(&facts, &hardware, &Wishes::default()).unwrap_err();
    assert!(matches!(refusal(no_layers), PlanRefusal::Header(_)));
    assert!(matches!(refusal(no_context), PlanRefusal::Header(_)));
    assert!(matches!(refusal(no_weights), PlanRefusal::NoWeights));
}

#[test]
fn the_best_version_fits_the_machine() {
    for (name, shape, ram, expected) in [
        ("SmolLM2-135M", SMOLLM2, 8.0, Some("Q6_K")),
        ("Llama-3.2-1B", LLAMA_1B, 8.0, Some("Q6_K")),
        ("Llama-3.1-8B", LLAMA_8B, 28.0, Some("Q4_K_M")),
        ("Qwen3.6-35B-A3B", QWEN36_35B, 60.0, Some("Q4_K_M")),
        ("Qwen3.6-35B-A3B", QWEN36_35B, 18.2, Some("IQ4_XS")),
        ("Qwen3.6-35B-A3B", QWEN36_35B, 12.0, Some("UD-IQ3_XXS")),
        ("Qwen3.6-35B-A3B", QWEN36_35B, 1.0, None),
    ] {
        let hardware = machine(None, ram + 4.0, ram);
        let plans: Vec<_> = shapes::QUANTS
            .iter()
            .map(|(quant, ..)| {
                let facts = facts(name, shape, quant);
                (quant, facts.file_bytes, plan(&facts, &hardware, &Wishes::default()).ok())
            })
            .collect();
        let candidates: Vec<_> = plans
            .iter()
            .map(|(quant, size_bytes, plan)| Candidate {
                quant,
                size_bytes: *size_bytes,
                plan: plan.as_ref(),
                is_unread: false,
            })
            .collect();
        let pick = pick(&candidates, Aim::Balanced);
        assert_eq!(pick.index.map(|i| candidates[i].quant), expected, "{name} with {ram} GB: {}", pick.reason.en);
    }
}

#[test]
fn nothing_to_pick_from_is_said() {
    let pick = pick(&[], Aim::Balanced);
    assert_eq!(pick.index, None);
    assert!(!pick.reason.en.is_empty() && !pick.reason.zh.is_empty());
}

/// The reasons of what can be tried and wished: threads, cache, chunk of prompts, use of the file.
fn reasons(wishes: &Wishes) -> [Text; 4] {
    let hardware = machine(None, 64.0, 60.0);
    let plan = plan(&facts("SmolLM2-135M", SMOLLM2, "Q4_K_M"), &hardware, wishes).unwrap();
    [0, 2, 3, 4].map(|i| plan.choices[i].why.clone())
}

#[test]
fn what_was_tried_is_not_called_wished_nor_the_other_way_round() {
    let tuned = Tuned { n_threads: 3, n_batch: 64, kv_type: "q8_0".to_owned(), file_use: FileUse::Copied };
    let wished = Wishes {
        n_threads: Some(2),
        n_batch: Some(128),
        kv_type: Some("f16".to_owned()),
        file_use: Some(FileUse::AsNeeded),
        ..Wishes::default()
    };
    let as_wished = Text::new("As wished.", "按你的设置。");
    let fastest = Text::new("The fastest of those tried here.", "试运行中最快。");
    for file_use in [FileUse::Copied, FileUse::AsNeeded] {
        let tuned = Tuned { file_use, ..tuned.clone() };
        assert_eq!(reasons(&Wishes { tuned: Some(tuned), ..Wishes::default() }), [0; 4].map(|_| fastest.clone()));
    }
    assert_eq!(reasons(&wished), [0; 4].map(|_| as_wished.clone()));
    let both = Wishes { tuned: Some(tuned.clone()), ..wished.clone() };
    assert_eq!(reasons(&both), [0; 4].map(|_| as_wished.clone()), "a wish stands above what was tried");
    let one = Wishes { n_threads: Some(2), tuned: Some(tuned), ..Wishes::default() };
    let expected = [&as_wished, &fastest, &fastest, &fastest].map(Clone::clone);
    assert_eq!(reasons(&one), expected);
    let free = reasons(&Wishes::default());
    assert!(free.iter().all(|why| *why != as_wished && *why != fastest), "{free:?}");
}

/// What the processor reads at a time and what the card does are told apart.
#[test]
fn chunks_of_prompts_agree_with_the_buffers_made_for_them() {
    let facts = facts("Qwen3.6-35B-A3B", QWEN36_35B, "Q4_K_M");
    for engine in [Engine::CpuOnly, Engine::WithGpu] {
        let plan = with_engine(&facts, &machine(Some(8.0), 32.0, 28.0), engine);
        let n = plan.n_batch;
        let told = format!("Prompt read {n} tokens at a time");
        assert!(plan.choices.iter().any(|choice| choice.what.en == told), "{:?}", plan.choices);
        let buffers: Vec<&str> =
            plan.lines.iter().filter(|line| line.part == Part::Buffers).map(|line| line.why.en.as_str()).collect();
        assert!(
            !buffers.is_empty() && buffers.iter().all(|why| !why.contains("tokens") || why.contains(&n.to_string())),
            "{buffers:?}"
        );
        if engine == Engine::WithGpu {
            assert!(plan.llama_cpp_command.contains(&format!("-b {n} -ub {n}")), "{}", plan.llama_cpp_command);
        }
    }
}
