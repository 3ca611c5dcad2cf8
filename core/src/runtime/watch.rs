//! Whether a loaded model would be laid out otherwise now: other programs come and go, and with them free memory. A change is
//! believed only when it stays, and told only where another plan helps.

use crate::plan::tokens_short;
use crate::wire::{Plan, Text};

/// Looks that must agree, and calls between two looks; calls come once a second.
const N_AGREEING: u32 = 3;
const CALLS_PER_LOOK: u32 = 5;

/// What the last looks said.
#[derive(Debug, Default)]
pub(super) struct Watch {
    n_calls: u32,
    n_agreeing: u32,
    last: Option<Text>,
}

impl Watch {
    /// Whether this call is one that looks.
    pub(super) fn is_due(&mut self) -> bool {
        self.n_calls = self.n_calls.wrapping_add(1);
        self.n_calls.is_multiple_of(CALLS_PER_LOOK)
    }

    /// Takes in what one look said; gives what to offer once enough of them agree.
    pub(super) fn saw(&mut self, offer: Option<Text>) -> Option<Option<Text>> {
        self.n_agreeing = if self.last == offer { self.n_agreeing + 1 } else { 1 };
        self.last = offer;
        (self.n_agreeing >= N_AGREEING).then(|| self.last.clone())
    }
}

/// What a plan made now would do better than the one that is loaded, in a sentence; nothing if that is not worth a reload.
///
/// more_bytes  memory that has become free since the load; less than zero if it has become scarce
pub(super) fn offer(loaded: &Plan, fresh: &Plan, more_bytes: i64) -> Option<Text> {
    let (context, then) = (tokens_short(fresh.context_length), loaded.context_length);
    let is_on_disk = |plan: &Plan| plan.ram_bar.shortfall_bytes > 0;
    let is_bigger = fresh.context_length > then || (fresh.context_length == then && fresh.kv_type != loaded.kv_type);
    if more_bytes > 0 && !is_on_disk(fresh) && is_on_disk(loaded) {
        return Some(Text::new(
            "Memory is free again: the whole model fits now.",
            "内存已空出：现在可以放下整个模型。",
        ));
    }
    // A load may have found less than the system promised: only what has really become free counts.
    if more_bytes > held_bytes(fresh) - held_bytes(loaded) && is_bigger && !is_on_disk(fresh) {
        return Some(Text::new(
            format!("Memory is free again: a context of {context} with its cache in {} fits now.", fresh.kv_type),
            format!("内存已空出：现在可用 {context} 上下文和 {} 缓存。", fresh.kv_type),
        ));
    }
    if more_bytes < 0 && fresh.context_length < then && !is_on_disk(fresh) {
        return Some(Text::new(
            format!("Other programs have taken memory: with a context of {context} the model stays whole in memory."),
            format!("其他程序占用了内存：改用 {context} 上下文，模型就能完整留在内存中。"),
        ));
    }
    None
}

/// What cannot be read from the file again.
fn held_bytes(plan: &Plan) -> i64 {
    i64::try_from(super::held_bytes(plan)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::example;
    use crate::wire::{FileUse, Part};

    fn plan(context_length: u32, kv_type: &str, shortfall_bytes: u64) -> Plan {
        let mut plan = Plan { context_length, kv_type: kv_type.to_owned(), ..example() };
        plan.ram_bar.shortfall_bytes = shortfall_bytes;
        plan
    }

    #[test]
    fn only_what_helps_is_offered() {
        let loaded = plan(4096, "f16", 0);
        let offered = |fresh: &Plan, more_bytes: i64| offer(&loaded, fresh, more_bytes).is_some();
        assert!(!offered(&plan(4096, "f16", 0), 1 << 30), "the same");
        assert!(offered(&plan(8192, "f16", 0), 1 << 30), "a longer context");
        assert!(!offered(&plan(8192, "f16", 0), 0), "the system promised as much before");
        assert!(!offered(&plan(8192, "f16", 5), 1 << 30), "at the price of the disk");
        assert!(offered(&plan(2048, "f16", 0), -1), "memory has become scarce");
        assert!(!offered(&plan(2048, "f16", 5), -1), "and nothing helps");
        assert!(offer(&plan(4096, "f16", 5), &plan(4096, "f16", 0), 1).is_some(), "whole again");
    }

    /// What a card will take over is not in main memory: nothing of it comes back.
    #[test]
    fn only_main_memory_comes_back() {
        let mut plan = example();
        let held = held_bytes(&plan);
        let in_ram =
            |part| plan.ram_bar.parts.iter().filter(|each| each.part == part).map(|each| each.bytes).sum::<u64>();
        assert_eq!(held as u64, in_ram(Part::Kv) + in_ram(Part::Buffers));
        plan.gpu_bar = Some(plan.ram_bar.clone());
        assert_eq!(held_bytes(&plan), held);
        plan.file_use = FileUse::Copied;
        let all: u64 = plan.ram_bar.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(held_bytes(&plan) as u64, all, "copied weights do come back");
    }

    #[test]
    fn a_change_counts_when_it_stays() {
        let mut watch = Watch::default();
        let offer = || Some(Text::new("a", "b"));
        assert_eq!(watch.saw(offer()), None);
        assert_eq!(watch.saw(None), None);
        assert_eq!(watch.saw(offer()), None);
        assert_eq!(watch.saw(offer()), None);
        assert_eq!(watch.saw(offer()), Some(offer()));
        assert_eq!((1..=10).filter(|_| watch.is_due()).count(), 2);
    }
}
