//! Which version of a model to take on this machine: the best quality that still runs at a good pace, and what the
//! neighbours would cost.
use std::cmp::Ordering;

use super::quality::quality;
use super::words::{about, size};
use crate::wire::{Aim, Plan, QualityLoss, Text, Verdict};

/// Where a model is fast, the version is taken whose loss nobody can tell; where it is not, one whose loss few notice
/// and that is quicker for it: divergences up to these count as equal, and the smaller file wins.
const GOOD_ENOUGH_IF_FAST: f64 = 0.006;
const GOOD_ENOUGH: f64 = 0.03;

/// The pace at which people read, tokens per second: slower than that, quality gives way to speed.
const READING_PACE: f64 = 5.0;

/// Below this nobody is advised to take a version, though it may run.
const SLOWEST_PACE: f64 = 2.0;

/// A version that could be taken.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Quantisation label.
    pub quant: &'a str,
    /// Size of its files.
    pub size_bytes: u64,
    /// Its plan, if there is one.
    pub plan: Option<&'a Plan>,
    /// Whether there is none because its header could not be read.
    pub is_unread: bool,
}

/// A choice among versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Index of the version to take, if any runs.
    pub index: Option<usize>,
    /// Why that one, and what the next better and next smaller would cost.
    pub reason: Text,
}

/// Picks a version; the order of `versions` does not matter.
pub fn pick(versions: &[Candidate<'_>], aim: Aim) -> Pick {
    let ranked = versions.iter().enumerate().filter_map(|(index, version)| Some((index, Rank::of(version, aim)?)));
    match ranked.min_by(|(_, a), (_, b)| a.compare(b)) {
        Some((index, _)) => Pick { index: Some(index), reason: reason(versions, index, aim) },
        None => Pick { index: None, reason: nothing_runs(versions) },
    }
}

/// What a verdict means for a choice.
#[derive(Clone, Copy, Debug)]
enum Pace {
    Fast,
    Readable,
    Slow,
    Tight,
}

impl Pace {
    fn of(plan: &Plan) -> Option<Self> {
        if plan.speed.generation_tokens_per_s < SLOWEST_PACE {
            return None;
        }
        match plan.verdict {
            Verdict::Fast => Some(Self::Fast),
            Verdict::RunsWell => Some(Self::Readable),
            Verdict::Slow if Rank::is_readable(plan) => Some(Self::Readable),
            Verdict::Slow => Some(Self::Slow),
            Verdict::Tight => Some(Self::Tight),
            Verdict::TooLarge => None,
        }
    }
}

/// Whoever wants a long context wants at least this many tokens.
const LONG_CONTEXT: u32 = 32_768;
/// With memory this short, a loss up to here counts as equal and the smaller file wins.
const GOOD_ENOUGH_IF_TIGHT: f64 = 0.2;

/// The lower, the better.
#[derive(Clone, Copy, Debug)]
struct Rank {
    tier: u8,
    /// What is weighed within a tier: divergence, or time.
    cost: f64,
    size_bytes: u64,
}

impl Rank {
    fn of(version: &Candidate<'_>, aim: Aim) -> Option<Self> {
        let plan = version.plan?;
        let pace = Pace::of(plan)?;
        let quality = quality(version.quant);
        let divergence = quality.divergence.unwrap_or(f64::MAX);
        let is_good = quality.loss <= QualityLoss::Small;
        let is_usable = quality.loss <= QualityLoss::Noticeable;
        let (tier, cost) = match aim {
            // Versions for which memory is short stay last whatever the aim.
            Aim::BetterQuality if !matches!(pace, Pace::Tight) => (0, divergence),
            Aim::Faster if is_usable && matches!(pace, Pace::Fast | Pace::Readable) => {
                (0, 1.0 / plan.speed.generation_tokens_per_s)
            }
            Aim::LongerContext if plan.context_length < LONG_CONTEXT.min(plan.max_context_length) => {
                (10 + Self::tier(pace, is_good, is_usable), divergence.max(Self::enough(pace)))
            }
            // Weights go back and forth between disk and memory: what is quickest to read is the best.
            _ if matches!(pace, Pace::Tight) && !(is_usable && Self::is_readable(plan)) => {
                (9, 1.0 / plan.speed.generation_tokens_per_s)
            }
            _ => (1 + Self::tier(pace, is_good, is_usable), divergence.max(Self::enough(pace))),
        };
        Some(Self { tier, cost, size_bytes: version.size_bytes })
    }

    fn tier(pace: Pace, is_good: bool, is_usable: bool) -> u8 {
        match pace {
            Pace::Fast if is_good => 0,
            Pace::Readable if is_good => 1,
            Pace::Fast | Pace::Readable if is_usable => 2,
            Pace::Slow if is_good => 3,
            Pace::Slow if is_usable => 4,
            Pace::Fast | Pace::Readable => 5,
            Pace::Slow => 6,
            Pace::Tight => 7,
        }
    }

    fn is_readable(plan: &Plan) -> bool {
        plan.speed.generation_tokens_per_s >= READING_PACE
    }

    fn enough(pace: Pace) -> f64 {
        match pace {
            Pace::Fast => GOOD_ENOUGH_IF_FAST,
            Pace::Readable | Pace::Slow => GOOD_ENOUGH,
            Pace::Tight => GOOD_ENOUGH_IF_TIGHT,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.tier.cmp(&other.tier).then(self.cost.total_cmp(&other.cost)).then(self.size_bytes.cmp(&other.size_bytes))
    }
}

fn reason(versions: &[Candidate<'_>], picked: usize, aim: Aim) -> Text {
    let own = &versions[picked];
    let mut sentences = vec![match versions.len() {
        1 => Text::new(format!("{} is the only version.", own.quant), format!("只有 {} 这一个版本。", own.quant)),
        _ => best_for(own.quant, aim),
    }];
    let divergence = |version: &Candidate<'_>| quality(version.quant).divergence.unwrap_or(f64::MAX);
    let is_better =
        |version: &&Candidate<'_>| divergence(version) < divergence(own) && version.size_bytes > own.size_bytes;
    let is_smaller = |version: &&Candidate<'_>| version.size_bytes < own.size_bytes;
    let better = versions.iter().filter(is_better).min_by_key(|version| version.size_bytes);
    let smaller = versions.iter().filter(is_smaller).max_by_key(|version| version.size_bytes);
    sentences.extend(better.map(|better| against_better(own, better)));
    sentences.extend(smaller.map(|smaller| against_smaller(own, smaller)));
    Text {
        en: sentences.iter().map(|text| text.en.as_str()).collect::<Vec<_>>().join(" "),
        zh: sentences.iter().map(|text| text.zh.as_str()).collect(),
    }
}

fn best_for(quant: &str, aim: Aim) -> Text {
    match aim {
        Aim::Balanced => Text::new(format!("{quant} is the best version here."), format!("{quant} 最适合本机。")),
        Aim::LongerContext => Text::new(
            format!("{quant} is the best version here that leaves room for a long context."),
            format!("在能容纳长上下文的版本中，{quant} 最适合本机。"),
        ),
        Aim::BetterQuality => Text::new(
            format!("{quant} is the version of the best quality that still runs here."),
            format!("{quant} 是本机能运行的质量最好的版本。"),
        ),
        Aim::Faster => Text::new(
            format!("{quant} is the fastest version here whose answers are still good."),
            format!("在回答质量仍然良好的版本中，{quant} 在本机最快。"),
        ),
    }
}

fn against_better(own: &Candidate<'_>, better: &Candidate<'_>) -> Text {
    let quant = better.quant;
    if better.is_unread {
        return unread(quant);
    }
    let Some(plan) = better.plan else {
        return Text::new(format!("{quant} does not run here."), format!("{quant} 无法在本机运行。"));
    };
    let short = plan.ram_bar.shortfall_bytes;
    if short > 0 {
        let short = size(short);
        return Text::new(format!("{quant} is {short} short of memory."), format!("{quant} 还差 {short} 内存。"));
    }
    let more = size(better.size_bytes - own.size_bytes);
    let (gain_en, gain_zh) = match quality(own.quant).loss {
        QualityLoss::None => ("nobody can tell", "难以察觉的提升"),
        QualityLoss::Small => ("few people notice", "很难察觉的提升"),
        QualityLoss::Noticeable | QualityLoss::Strong | QualityLoss::Unknown => ("you may notice", "可以察觉的提升"),
    };
    match slower(own, plan) {
        Some((en, zh)) => Text::new(
            format!("{quant} takes {more} more and is {en} slower, for a gain {gain_en}."),
            format!("{quant} 多占 {more}，每秒慢 {zh}，换来{gain_zh}。"),
        ),
        None => Text::new(
            format!("{quant} takes {more} more, for a gain {gain_en}."),
            format!("{quant} 多占 {more}，换来{gain_zh}。"),
        ),
    }
}

fn against_smaller(own: &Candidate<'_>, smaller: &Candidate<'_>) -> Text {
    let quant = smaller.quant;
    if smaller.is_unread {
        return unread(quant);
    }
    let saved = size(own.size_bytes - smaller.size_bytes);
    let loses = quality(smaller.quant).loss > quality(own.quant).loss;
    let (loss_en, loss_zh) = if loses {
        (", at a loss in quality", "，但质量有所下降")
    } else {
        (", at nearly the same quality", "，质量几乎相同")
    };
    match smaller.plan.and_then(|plan| faster(own, plan)) {
        Some((en, zh)) => Text::new(
            format!("{quant} saves {saved} and is {en} faster{loss_en}."),
            format!("{quant} 省 {saved}，每秒快 {zh}{loss_zh}。"),
        ),
        None => Text::new(format!("{quant} saves {saved}{loss_en}."), format!("{quant} 省 {saved}{loss_zh}。")),
    }
}

fn unread(quant: &str) -> Text {
    Text::new(
        format!("{quant} could not be read, so nothing is known of it yet."),
        format!("未能读取 {quant}，暂时无法判断。"),
    )
}

/// The whole tokens per second that the other version is slower, if that is one or more.
fn slower(own: &Candidate<'_>, other: &Plan) -> Option<(String, String)> {
    let difference = own.plan?.speed.generation_tokens_per_s - other.speed.generation_tokens_per_s;
    (difference >= 0.5).then(|| about(difference))
}

/// The same the other way round.
fn faster(own: &Candidate<'_>, other: &Plan) -> Option<(String, String)> {
    let difference = other.speed.generation_tokens_per_s - own.plan?.speed.generation_tokens_per_s;
    (difference >= 0.5).then(|| about(difference))
}

fn nothing_runs(versions: &[Candidate<'_>]) -> Text {
    let Some(smallest) = versions.iter().min_by_key(|version| version.size_bytes) else {
        return Text::new("There is no version to choose from.", "没有可选的版本。");
    };
    let quant = smallest.quant;
    if versions.iter().all(|version| version.is_unread) {
        return Text::new(
            "No version could be read yet: the hub did not answer.",
            "还没有读到任何版本：站点没有响应。",
        );
    }
    if smallest.is_unread {
        return unread(quant);
    }
    match smallest.plan.map(|plan| plan.ram_bar.shortfall_bytes).filter(|short| *short > 0) {
        Some(short) => {
            let short = size(short);
            Text::new(
                format!("No version runs here: even the smallest, {quant}, is {short} short of memory."),
                format!("没有可在本机运行的版本：最小的 {quant} 也还差 {short} 内存。"),
            )
        }
        None => Text::new(
            format!("No version runs here at a usable speed, not even the smallest, {quant}."),
            format!("没有版本能在本机以可用的速度运行，最小的 {quant} 也不行。"),
        ),
    }
}
