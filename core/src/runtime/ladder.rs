//! What a load gives up, rung by rung, when memory is short: first the chunk in which prompts are read, then the precision of
//! the cache, then the context. Each rung is a wish, so that the plan stays one plan; what was given up is said in a sentence.

use crate::plan::tokens_short;
use crate::wire::{ErrorCode, Failure, Plan, Text, Wishes};

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
    Batch,
    KvType,
    Context,
}

/// The way down from what was wished.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    wishes: Wishes,
    last: Option<Rung>,
    has_refused_kv: bool,
}

impl Ladder {
    /// At the top: nothing is given up.
    pub(super) fn new(wishes: &Wishes) -> Self {
        Self { wishes: wishes.clone(), last: None, has_refused_kv: false }
    }

    /// What to wish now.
    pub(super) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// Gives up everything at once, where not even a plan is found; false if that was done before.
    pub(super) fn step_to_the_end(&mut self) -> bool {
        let before = self.wishes.clone();
        self.wishes.n_batch = Some(LEAST_BATCH);
        self.wishes.kv_type.get_or_insert_with(|| SMALL_KV.to_owned());
        self.wishes.context_length = Some(self.wishes.context_length.unwrap_or(LEAST_CONTEXT).min(LEAST_CONTEXT));
        self.last = Some(Rung::KvType);
        self.wishes != before
    }

    /// Steps down after a load as `plan` says has failed; false if that was no matter of memory, or the last rung.
    pub(super) fn step(&mut self, plan: &Plan, failure: &Failure) -> bool {
        let is_memory = failure.code == ErrorCode::OutOfMemory;
        // A model whose heads do not go into the blocks of such a cache says so.
        let is_kv = self.last == Some(Rung::KvType) && !is_memory && failure.code != ErrorCode::Cancelled;
        if is_kv {
            self.wishes.kv_type = None;
            self.has_refused_kv = true;
        } else if !is_memory {
            return false;
        }
        let rung = if plan.n_batch > LEAST_BATCH {
            self.wishes.n_batch = Some((plan.n_batch / 4).max(LEAST_BATCH));
            Rung::Batch
        } else if LARGE_KV.contains(&plan.kv_type.as_str()) && !self.has_refused_kv {
            self.wishes.kv_type = Some(SMALL_KV.to_owned());
            Rung::KvType
        } else if plan.context_length > LEAST_CONTEXT {
            self.wishes.context_length = Some((plan.context_length / 2).max(LEAST_CONTEXT));
            Rung::Context
        } else {
            return false;
        };
        tracing::warn!(?rung, message = failure.message.en, "memory is short; the load steps down");
        self.last = Some(rung);
        true
    }
}

/// What `plan` gave up against the plan that more free memory would allow, in one sentence.
pub(super) fn given_up(ample: &Plan, plan: &Plan) -> Option<Text> {
    let mut parts = Vec::new();
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
    use crate::plan::example;

    fn out_of_memory() -> Failure {
        Failure::new(ErrorCode::OutOfMemory, Text::default(), Text::default())
    }

    /// Takes all rungs, as plans that grant every wish would.
    fn descend(plan: &mut Plan, answer: impl Fn(&Wishes) -> Failure) -> Vec<(u32, String, u32)> {
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

    #[test]
    fn a_cache_that_the_model_cannot_have_is_passed_over() {
        let answer = |wishes: &Wishes| match wishes.kv_type {
            Some(_) => Failure::new(ErrorCode::EngineFailed, Text::default(), Text::default()),
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
            assert_eq!(descend(&mut plan(512, "f16", 8192), |_| failure.clone()), []);
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
