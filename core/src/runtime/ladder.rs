//! What a load gives up, rung by rung, when memory is short: first a copy of the file, and on a card that is short some layers'
//! experts; then the chunk in which prompts are read, then the precision of the cache, then the context, and where the card is
//! still short, the card. Each rung is a wish, so that the plan stays one plan; what was given up is said in a sentence.

use tandem_engine::cuda::CudaError;
use tandem_engine::error::EngineError;
use tandem_engine::place::Device;

use crate::error::{Explain, spoiled_card};
use crate::plan::{is_card_used, n_expert_layers_on_card, n_layers_on_card, tokens_short};
use crate::wire::{ErrorCode, Failure, FileUse, Plan, Text, Wishes};

/// Prompts are read in chunks no smaller: below this every chunk costs about the same.
const LEAST_BATCH: u32 = 32;
/// Contexts no shorter, as in plans.
const LEAST_CONTEXT: u32 = 2048;
/// The cache that is tried instead of a larger one: half of f16 at nearly the same quality.
const SMALL_KV: &str = "q8_0";
const LARGE_KV: [&str; 2] = ["f16", "f32"];

/// One thing given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Copy,
    ExpertLayers,
    Batch,
    KvType,
    Context,
    Card,
}

/// Why a load has ended.
#[derive(Clone, Debug)]
pub(super) struct LoadStop {
    /// What a person is told.
    pub(super) failure: Failure,
    /// The device whose memory is short, if that is it.
    pub(super) short_on: Option<Device>,
    /// The card that is not to be used again.
    pub(super) spoiled: Option<u32>,
}

impl From<EngineError> for LoadStop {
    fn from(error: EngineError) -> Self {
        let (device, spoiled) = match &error {
            EngineError::DoesNotFit { device, .. } => (Some(*device), None),
            EngineError::Cuda(CudaError::OutOfMemory { index, .. }) => (Some(Device::Cuda(*index)), None),
            EngineError::Cuda(error) => (None, spoiled_card(error)),
            _ => (None, None),
        };
        let stop = Self::from(error.explain());
        Self { short_on: device.or(stop.short_on), spoiled, ..stop }
    }
}

impl From<Failure> for LoadStop {
    fn from(failure: Failure) -> Self {
        let short_on = (failure.code == ErrorCode::OutOfMemory).then_some(Device::Cpu);
        Self { failure, short_on, spoiled: None }
    }
}

/// The way down from what was wished.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    top: Wishes,
    wishes: Wishes,
    last: Option<Rung>,
    has_refused_kv: bool,
}

impl Ladder {
    /// At the top: nothing is given up.
    pub(super) fn new(wishes: &Wishes) -> Self {
        Self { top: wishes.clone(), wishes: wishes.clone(), last: None, has_refused_kv: false }
    }

    /// Begins anew with the processor alone.
    pub(super) fn leave_card(&mut self) {
        *self = Self::new(&Wishes { n_gpu_layers: Some(0), ..self.top.clone() });
    }

    /// What to wish now.
    pub(super) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// Gives up everything at once, where not even a plan is found; false if that was done before.
    pub(super) fn step_to_the_end(&mut self) -> bool {
        let before = self.wishes.clone();
        self.wishes.file_use = Some(FileUse::ReadAhead);
        self.wishes.n_batch = Some(LEAST_BATCH);
        self.wishes.kv_type.get_or_insert_with(|| SMALL_KV.to_owned());
        self.wishes.context_length = Some(self.wishes.context_length.unwrap_or(LEAST_CONTEXT).min(LEAST_CONTEXT));
        self.last = Some(Rung::KvType);
        self.wishes != before
    }

    /// Steps down after a load as `plan` says has failed; false if that was no matter of memory, or the last rung.
    pub(super) fn step(&mut self, plan: &Plan, stop: &LoadStop) -> bool {
        let LoadStop { failure, short_on, .. } = stop;
        let is_memory = short_on.is_some();
        let n_experts = n_expert_layers_on_card(plan);
        // A model whose heads do not go into the blocks of such a cache says so.
        let is_kv = self.last == Some(Rung::KvType) && !is_memory && failure.code != ErrorCode::Cancelled;
        if is_kv {
            self.wishes.kv_type = None;
            self.has_refused_kv = true;
        } else if !is_memory {
            return false;
        }
        let rung = if plan.file_use == FileUse::Copied && *short_on == Some(Device::Cpu) {
            self.wishes.file_use = Some(FileUse::ReadAhead);
            Rung::Copy
        } else if n_experts > 0 && matches!(short_on, Some(Device::Cuda(_))) {
            // In main memory they are as good, only slower; a quarter at a time, so that few loads are tried.
            self.wishes.n_expert_layers = Some(n_experts - n_experts.div_ceil(4));
            Rung::ExpertLayers
        } else if plan.n_batch > LEAST_BATCH && self.wishes.n_batch.is_none_or(|n| n > LEAST_BATCH) {
            self.wishes.n_batch = Some((plan.n_batch / 4).max(LEAST_BATCH));
            Rung::Batch
        } else if LARGE_KV.contains(&plan.kv_type.as_str()) && !self.has_refused_kv {
            self.wishes.kv_type = Some(SMALL_KV.to_owned());
            Rung::KvType
        } else if plan.context_length > LEAST_CONTEXT {
            self.wishes.context_length = Some((plan.context_length / 2).max(LEAST_CONTEXT));
            Rung::Context
        } else if is_card_used(plan) && matches!(short_on, Some(Device::Cuda(_))) {
            self.leave_card();
            Rung::Card
        } else {
            return false;
        };
        tracing::warn!(?rung, message = failure.message.en, "memory is short; the load steps down");
        self.last = Some(rung).filter(|rung| *rung != Rung::Card);
        true
    }
}

/// That a card does not compute, and why.
pub(super) fn without_card(why: &Text) -> Text {
    Text::new(format!("The graphics card is not used: {}.", why.en), format!("未使用显卡：{}。", why.zh))
}

/// Both, if there are two.
pub(super) fn joined(first: Option<Text>, second: Option<Text>) -> Option<Text> {
    match (first, second) {
        (Some(first), Some(second)) => {
            Some(Text::new(format!("{} {}", first.en, second.en), format!("{}{}", first.zh, second.zh)))
        }
        (first, second) => first.or(second),
    }
}

/// What `plan` gave up against the plan that more free memory would allow, in one sentence.
pub(super) fn given_up(ample: &Plan, plan: &Plan) -> Option<Text> {
    let mut parts = Vec::new();
    let is_left = is_card_used(ample) && !is_card_used(plan);
    let n_layers_moved = n_layers_on_card(ample).saturating_sub(n_layers_on_card(plan));
    let n_moved = n_expert_layers_on_card(ample).saturating_sub(n_expert_layers_on_card(plan));
    if is_left {
        parts.push(Text::new("the graphics card is not used", "未使用显卡"));
    } else if n_layers_moved > 0 {
        let layers = if n_layers_moved == 1 { "layer is" } else { "layers are" };
        parts.push(Text::new(
            format!("{n_layers_moved} {layers} in memory instead of on the card"),
            format!("{n_layers_moved} 层放在内存，而非显卡"),
        ));
    } else if n_moved > 0 {
        let layers = if n_moved == 1 { "layer" } else { "layers" };
        parts.push(Text::new(
            format!("the experts of {n_moved} {layers} are in memory instead of on the card"),
            format!("{n_moved} 层的专家放在内存，而非显卡"),
        ));
    }
    if plan.context_length < ample.context_length {
        let (now, then) = (tokens_short(plan.context_length), tokens_short(ample.context_length));
        parts
            .push(Text::new(format!("the context is {now} instead of {then}"), format!("上下文为 {now}，而非 {then}")));
    }
    if plan.kv_type != ample.kv_type {
        let (now, then) = (&plan.kv_type, &ample.kv_type);
        parts.push(Text::new(
            format!("the KV cache is {now} instead of {then}"),
            format!("KV 缓存为 {now}，而非 {then}"),
        ));
    }
    if plan.n_batch < ample.n_batch {
        let (now, then) = (plan.n_batch, ample.n_batch);
        parts.push(Text::new(
            format!("prompts are read {now} tokens at a time instead of {then}"),
            format!("提示每次读入 {now} 个词元，而非 {then} 个"),
        ));
    }
    if ample.file_use == FileUse::Copied && plan.file_use != FileUse::Copied {
        parts.push(Text::new("the file is mapped instead of copied", "文件改为映射，不再复制"));
    }
    let is_on_disk = |plan: &Plan| plan.ram_bar.shortfall_bytes > 0;
    if is_on_disk(plan) && !is_on_disk(ample) {
        parts.push(Text::new("a part of the model is read from disk", "模型的一部分从磁盘读取"));
    }
    let joined = |words: fn(&Text) -> &str, comma: &str| parts.iter().map(words).collect::<Vec<_>>().join(comma);
    (!parts.is_empty()).then(|| {
        Text::new(
            format!("Memory is short: {}.", joined(|text| &text.en, ", ")),
            format!("内存不足：{}。", joined(|text| &text.zh, "，")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{example, with_card};

    fn out_of_memory() -> LoadStop {
        Failure::new(ErrorCode::OutOfMemory, Text::default(), Text::default()).into()
    }

    fn card_is_full() -> LoadStop {
        EngineError::DoesNotFit { device: Device::Cuda(0), needed_bytes: 2, available_bytes: 1 }.into()
    }

    /// Takes all rungs, as plans that grant every wish would.
    fn descend(plan: &mut Plan, answer: impl Fn(&Wishes) -> LoadStop) -> Vec<(u32, String, u32)> {
        let mut ladder = Ladder::new(&Wishes::default());
        let mut seen = Vec::new();
        let kv_type = plan.kv_type.clone();
        while ladder.step(plan, &answer(ladder.wishes())) {
            let wishes = ladder.wishes();
            plan.n_batch = wishes.n_batch.unwrap_or(plan.n_batch);
            plan.kv_type = wishes.kv_type.clone().unwrap_or_else(|| kv_type.clone());
            plan.context_length = wishes.context_length.unwrap_or(plan.context_length);
            seen.push((plan.n_batch, plan.kv_type.clone(), plan.context_length));
        }
        seen
    }

    fn plan(n_batch: u32, kv_type: &str, context_length: u32) -> Plan {
        Plan { n_batch, kv_type: kv_type.to_owned(), context_length, ..example() }
    }

    #[test]
    fn it_steps_down_in_order_and_ends() {
        let expected =
            [(128, "f16", 8192), (32, "f16", 8192), (32, "q8_0", 8192), (32, "q8_0", 4096), (32, "q8_0", 2048)];
        let expected = expected.map(|(n_batch, kv_type, context)| (n_batch, kv_type.to_owned(), context));
        assert_eq!(descend(&mut plan(512, "f16", 8192), |_| out_of_memory()), expected);
        assert_eq!(descend(&mut plan(32, "q4_0", 1000), |_| out_of_memory()), []);
    }

    /// A machine that does not exist yet: the planner plans for its card, the engine says that the card is full.
    #[test]
    fn experts_leave_a_full_card_layer_by_layer_before_anything_else_is_given_up() {
        let plan_with = with_card();
        let mut ladder = Ladder::new(&Wishes::default());
        let first = plan_with(ladder.wishes());
        let (mut plan, mut seen) = (first.clone(), vec![n_expert_layers_on_card(&first)]);
        while seen.last() != Some(&0) {
            assert!(ladder.step(&plan, &card_is_full()));
            plan = plan_with(ladder.wishes());
            seen.push(n_expert_layers_on_card(&plan));
        }
        assert!(seen[0] > 4 && seen.windows(2).all(|pair| pair[0] > pair[1]), "{seen:?}");
        let kept = |plan: &Plan| (plan.n_batch, plan.kv_type.clone(), plan.context_length, plan.n_gpu_layers);
        assert_eq!(kept(&plan), kept(&first), "nothing else was touched");
        let said = given_up(&first, &plan).unwrap();
        let n = seen[0];
        assert_eq!(
            said.en,
            format!("Memory is short: the experts of {n} layers are in memory instead of on the card.")
        );
        assert_eq!(said.zh, format!("内存不足：{n} 层的专家放在内存，而非显卡。"));
        assert!(ladder.step(&plan, &card_is_full()));
        assert!(ladder.wishes().n_batch < Some(first.n_batch), "then the next rung");
    }

    #[test]
    fn a_card_that_stays_full_is_left_at_the_end_with_nothing_else_given_up() {
        let plan_with = with_card();
        let wishes = Wishes { n_threads: Some(2), ..Wishes::default() };
        let mut ladder = Ladder::new(&wishes);
        let full: LoadStop =
            EngineError::from(CudaError::OutOfMemory { index: 0, needed_bytes: 2, free_bytes: 1 }).into();
        assert_eq!(full.short_on, Some(Device::Cuda(0)));
        let first = plan_with(ladder.wishes());
        let mut plan = first.clone();
        while is_card_used(&plan) {
            assert!(ladder.step(&plan, &full));
            plan = plan_with(ladder.wishes());
        }
        assert_eq!(ladder.wishes(), &Wishes { n_gpu_layers: Some(0), ..wishes });
        let said = given_up(&first, &plan).unwrap();
        assert!(said.en.starts_with("Memory is short: the graphics card is not used"), "{}", said.en);
        assert!(ladder.step(&plan, &out_of_memory()), "and the processor's ladder begins at its top");
        assert!(!Ladder::new(&Wishes::default()).step(&Plan { n_batch: 32, ..example() }, &wrong()));
    }

    fn wrong() -> LoadStop {
        EngineError::from(CudaError::WrongResult { index: 1, what: "attention of 1".to_owned() }).into()
    }

    #[test]
    fn a_card_that_is_wrong_is_no_matter_of_memory() {
        assert_eq!((wrong().short_on, wrong().spoiled), (None, Some(1)));
        let busy: LoadStop = EngineError::from(CudaError::Busy { index: 1 }).into();
        assert_eq!((busy.short_on, busy.spoiled), (None, None));
    }

    #[test]
    fn main_memory_that_is_short_does_not_move_experts_into_it() {
        let plan = with_card()(&Wishes::default());
        let mut ladder = Ladder::new(&Wishes::default());
        assert!(ladder.step(&plan, &out_of_memory()));
        assert_eq!((ladder.wishes().n_expert_layers, ladder.wishes().n_batch), (None, Some(plan.n_batch / 4)));
    }

    #[test]
    fn a_copy_of_the_file_is_the_first_thing_to_go() {
        let copied = Plan { file_use: FileUse::Copied, ..plan(512, "f16", 8192) };
        let mut ladder = Ladder::new(&Wishes { file_use: Some(FileUse::Copied), ..Wishes::default() });
        assert!(ladder.step(&copied, &out_of_memory()));
        assert_eq!(ladder.wishes().file_use, Some(FileUse::ReadAhead));
        let mapped = Plan { file_use: FileUse::ReadAhead, ..copied.clone() };
        assert_eq!(given_up(&copied, &mapped).unwrap().en, "Memory is short: the file is mapped instead of copied.");
    }

    #[test]
    fn a_cache_that_the_model_cannot_have_is_passed_over() {
        let answer = |wishes: &Wishes| match wishes.kv_type {
            Some(_) => Failure::new(ErrorCode::EngineFailed, Text::default(), Text::default()).into(),
            None => out_of_memory(),
        };
        let seen = descend(&mut plan(32, "f16", 4096), answer);
        let expected = [(32, "q8_0".to_owned(), 4096), (32, "f16".to_owned(), 2048)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn other_failures_end_the_load_at_once() {
        for code in [ErrorCode::Cancelled, ErrorCode::GgufDamaged] {
            let failure = Failure::new(code, Text::default(), Text::default());
            assert_eq!(descend(&mut plan(512, "f16", 8192), |_| failure.clone().into()), []);
        }
    }

    #[test]
    fn what_was_given_up_is_one_sentence_and_nothing_is_none() {
        let ample = plan(512, "f16", 8192);
        assert_eq!(given_up(&ample, &ample), None);
        let said = given_up(&ample, &plan(32, "q8_0", 2048)).unwrap();
        assert_eq!(
            said.en,
            "Memory is short: the context is 2k instead of 8k, the KV cache is q8_0 instead of f16, prompts are read 32 \
             tokens at a time instead of 512."
        );
        assert_eq!(
            said.zh,
            "内存不足：上下文为 2k，而非 8k，KV 缓存为 q8_0，而非 f16，提示每次读入 32 个词元，而非 512 个。"
        );
    }
}
