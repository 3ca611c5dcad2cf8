//! A plan in words, in both languages: headline, a line per choice, and llama.cpp's command.
use tandem_engine::kv::{KvType, KvTypes};

use super::choose::{ContextWhy, KvWhy};
use super::layout::Layout;
use super::parts::gpu_bar;
use super::place::Split;
use super::predict::Prediction;
use super::quality::quality;
use super::sizes::Sizes;
use super::{Draft, TIGHT_BYTES, ThreadsWhy};
use crate::wire::{FileUse, Plan, PlanChoice, Speed, Text, Verdict, Wishes};

pub(super) use crate::error::size;

/// Joins a number and its unit.
const NBSP: char = '\u{a0}';

impl Draft<'_> {
    /// Puts everything into words.
    pub(super) fn into_plan(self) -> Plan {
        let (sizes, split) = (self.sizes(), self.card_split());
        Plan {
            architecture: self.outline.architecture.clone(),
            quant: self.outline.quant.clone(),
            verdict: self.layout().verdict(),
            headline: self.headline(),
            n_layers: sizes.n_layers(),
            n_gpu_layers: split.map_or(0, |split| split.n_gpu_layers(sizes)),
            n_cpu_moe_layers: split.map_or(0, |split| split.n_cpu_moe_layers(sizes)),
            n_threads: self.threads.n,
            context_length: self.layout().context.length,
            max_context_length: sizes.max_context,
            n_batch: self.n_batch(),
            kv_type: self.layout().context.kv_types.to_string(),
            file_use: self.file_use(),
            quality: quality(&self.outline.quant),
            usable_context_length: self.usable_context,
            lines: self.lines(),
            layers: self.layers(),
            choices: self.choices(),
            gpu_bar: split.map(gpu_bar),
            ram_bar: self.ram_bar(),
            disk_bar: self.disk_bar(),
            speed: speed(self.layout()),
            token_costs: self.token_costs(),
            cpu_computes: split.filter(|_| self.split().is_none()).map(cpu_computes),
            warnings: self.warnings(),
            llama_cpp_command: self.llama_cpp_command(),
            contexts: self.contexts,
        }
    }

    pub(super) fn sizes(&self) -> &Sizes {
        self.planner.sizes
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.chosen.layout
    }

    /// What the card holds and computes.
    pub(super) fn split(&self) -> Option<&Split> {
        self.layout().split.as_ref()
    }

    /// The layout of an engine that uses the card, where this one does not.
    pub(super) fn card_layout(&self) -> &Layout {
        self.with_card.as_ref().map_or(self.layout(), |chosen| &chosen.layout)
    }

    /// What the card holds, or will once the engine uses it.
    pub(super) fn card_split(&self) -> Option<&Split> {
        self.card_layout().split.as_ref()
    }

    /// Caches of all layers.
    pub(super) fn kv_bytes(&self) -> u64 {
        self.layout().kv_bytes()
    }

    pub(super) fn file_use(&self) -> FileUse {
        let ram = &self.layout().ram;
        let tuned = self.planner.wishes.tuned.as_ref().map(|tuned| tuned.file_use);
        match self.planner.wishes.file_use.or(tuned) {
            // What finds no room would only push out what was read before it.
            _ if ram.missing_bytes() > 0 => FileUse::AsNeeded,
            // Copies cannot be dropped and read again: only where something is left beside them.
            Some(FileUse::Copied) if ram.spare_bytes() >= TIGHT_BYTES => FileUse::Copied,
            Some(FileUse::AsNeeded) => FileUse::AsNeeded,
            Some(FileUse::Copied | FileUse::ReadAhead) | None => FileUse::ReadAhead,
        }
    }

    fn headline(&self) -> Text {
        let layout = self.layout();
        let (verdict, missing_bytes) = (layout.verdict(), layout.ram.missing_bytes());
        let (en, zh) = verdict_words(verdict);
        if verdict == Verdict::TooLarge && missing_bytes > 0 {
            let short = size(missing_bytes);
            return Text::new(format!("{en}: {short} short of memory"), format!("{zh}：内存还差 {short}"));
        }
        let context = tokens_short(layout.context.length);
        let (rate_en, rate_zh) = about(layout.prediction.generation.likely);
        Text::new(
            format!("{en}: about {rate_en}, {context}{NBSP}context"),
            format!("{zh}：每秒约 {rate_zh}，{context}{NBSP}上下文"),
        )
    }

    fn choices(&self) -> Vec<PlanChoice> {
        let choice = |what, why| PlanChoice { what, why };
        vec![
            choice(counted(self.threads.n, "thread", "threads", "个线程"), self.why_threads()),
            choice(self.context_words(), self.why_context()),
            choice(self.kv_type_words(), self.why_kv_type()),
            choice(
                Text::new(
                    format!("Prompt read {} tokens at a time", self.n_batch()),
                    format!("提示每次读入 {} 个词元", self.n_batch()),
                ),
                self.why_batch(),
            ),
            PlanChoice { what: self.file_use_words(), why: self.why_file_use() },
        ]
    }

    fn why_batch(&self) -> Text {
        let Wishes { n_batch: wish, tuned, .. } = self.planner.wishes;
        match (self.n_batch(), wish, tuned) {
            (n, Some(wish), _) if n == *wish => as_wished(),
            // What is tuned is the processor's chunk, not the card's.
            _ if self.split().is_some() => Text::new("As many as the buffers are made for.", "缓冲区按此大小分配。"),
            (n, None, Some(tuned)) if n == tuned.n_batch => fastest_tried(),
            _ => Text::new("Short enough to stop at once.", "足够短，可随时停止。"),
        }
    }

    fn file_use_words(&self) -> Text {
        match self.file_use() {
            FileUse::ReadAhead => Text::new("File mapped and read ahead", "映射文件并预先读入"),
            FileUse::AsNeeded => Text::new("File mapped, read as needed", "映射文件，按需读取"),
            FileUse::Copied => Text::new("File copied into memory", "文件复制到内存"),
        }
    }

    fn why_file_use(&self) -> Text {
        match self.file_use() {
            FileUse::ReadAhead => Text::new(
                "The first answer is as quick as the next, and other programs can have the memory back.",
                "首次回答与之后一样快，其他程序需要时可收回内存。",
            ),
            FileUse::AsNeeded if self.layout().ram.missing_bytes() > 0 => {
                Text::new("It does not fit in memory at once.", "内存无法一次放下整个文件。")
            }
            FileUse::AsNeeded | FileUse::Copied if self.planner.wishes.file_use.is_none() => fastest_tried(),
            FileUse::AsNeeded | FileUse::Copied => as_wished(),
        }
    }

    fn context_words(&self) -> Text {
        let length = grouped(self.layout().context.length);
        Text::new(format!("Context of {length} tokens"), format!("上下文 {length} 个词元"))
    }

    fn kv_type_words(&self) -> Text {
        let types = self.layout().context.kv_types;
        Text::new(format!("KV cache in {types}"), format!("KV 缓存为 {types}"))
    }

    fn why_kv_type(&self) -> Text {
        let types = self.layout().context.kv_types;
        match self.chosen.kv_why {
            KvWhy::Room => Text::new(
                "Half the size of f16, so that this context finds room; hardly anybody notices.",
                "大小是 f16 的一半，这样才放得下该上下文；质量损失很难察觉。",
            ),
            KvWhy::Faster => Text::new(
                "Half the size of f16, so that more fits where it is fast; hardly anybody notices.",
                "大小是 f16 的一半，速度快的地方能多放一些；质量损失很难察觉。",
            ),
            KvWhy::Wish if types.k == KvType::Q4_0 || types.v == KvType::Q4_0 => Text::new(
                "As wished; a quarter of f16, and long texts are remembered less exactly.",
                "按你的设置；大小约为 f16 的四分之一，对长文本的记忆会不够精确。",
            ),
            KvWhy::Wish => as_wished(),
            KvWhy::Tuned => fastest_tried(),
            KvWhy::Usual => Text::new("Half the size of f32 at the same quality.", "大小是 f32 的一半，质量相同。"),
        }
    }

    fn why_threads(&self) -> Text {
        match self.threads.why {
            ThreadsWhy::Tuned => fastest_tried(),
            ThreadsWhy::Wish => as_wished(),
            ThreadsWhy::AllowedCores => {
                Text::new("As many as this program may use here.", "系统允许本程序使用的数量。")
            }
            ThreadsWhy::PerformanceCores if self.has_efficiency_cores() => Text::new(
                "One per performance core; slower cores would hold them up.",
                "每个性能核心一个；能效核心会拖慢整体。",
            ),
            ThreadsWhy::PerformanceCores => Text::new("One per physical core.", "每个物理核心一个。"),
        }
    }

    fn has_efficiency_cores(&self) -> bool {
        self.planner.hardware.cpu.n_performance_cores < self.planner.hardware.cpu.n_physical_cores
    }

    fn why_context(&self) -> Text {
        let cost = size(self.kv_bytes());
        match self.chosen.context_why {
            ContextWhy::Default => Text::new(
                format!("Room for a long conversation; it costs {cost}."),
                format!("足够长时间对话，占 {cost}。"),
            ),
            ContextWhy::Wish => Text::new(format!("As wished; it costs {cost}."), format!("按你的设置，占 {cost}。")),
            ContextWhy::Trained => Text::new("The model was trained for no more.", "模型训练时的上下文就是这么长。"),
            ContextWhy::Room if self.layout().ram.missing_bytes() > 0 => Text::new(
                "Memory is short already; this leaves most of it to the model.",
                "内存已经不足，这样能给模型留出最多。",
            ),
            ContextWhy::Room => {
                Text::new("A longer one would push the model out of memory.", "再长就会把模型挤出内存。")
            }
            ContextWhy::NearestToWish => {
                Text::new("The nearest to the wish that works here.", "最接近你的设置且可行的长度。")
            }
            ContextWhy::Longest => Text::new(
                format!("The longest with which everything stays in memory; it costs {cost}."),
                format!("模型仍能全部留在内存中的最大长度，占 {cost}。"),
            ),
            ContextWhy::Faster => Text::new(
                "Shorter than usual, so that more of the model fits on the card.",
                "比通常短，以便显卡放下更多的层。",
            ),
        }
    }

    /// llama.cpp uses the card whether this version does or not: its command is that of the plan with it.
    fn llama_cpp_command(&self) -> String {
        let (layout, sizes) = (self.card_layout(), self.sizes());
        let split = layout.split.as_ref();
        let name = self.outline.file_name.as_str();
        let mut command =
            vec!["llama-server -m".to_owned(), shell_word(if name.is_empty() { "model.gguf" } else { name })];
        let mut push = |flag: &str, value: &dyn std::fmt::Display| command.push(format!("{flag} {value}"));
        push("-ngl", &split.map_or(0, |split| split.n_gpu_layers(sizes)));
        if let Some(split) = split {
            let n_cpu_moe = split.n_cpu_moe_flag(sizes);
            if n_cpu_moe > 0 {
                push("--n-cpu-moe", &n_cpu_moe);
            }
            if self.planner.hardware.gpus.len() > 1 {
                push("-sm none -mg", &split.gpu.index);
            }
        }
        let KvTypes { k, v } = layout.context.kv_types;
        push("-c", &layout.context.length);
        // By default it keeps states and windows for four conversations.
        push("-np", &1);
        if k != KvType::F16 {
            push("-ctk", &k);
        }
        if v != KvType::F16 {
            push("-ctv", &v);
        }
        if !matches!(v, KvType::F32 | KvType::F16) {
            // Values in blocks are only read by flash attention.
            push("-fa", &"on");
        }
        push("-t", &self.threads.n);
        let n_batch = split.map_or(self.planner.n_batch, |split| split.n_batch);
        push("-b", &n_batch);
        push("-ub", &n_batch);
        if layout.ram.spare_bytes() >= TIGHT_BYTES && self.planner.wishes.file_use != Some(FileUse::AsNeeded) {
            command.push("--no-mmap".to_owned());
        }
        command.join(" ")
    }
}

fn as_wished() -> Text {
    Text::new("As wished.", "按你的设置。")
}

fn fastest_tried() -> Text {
    Text::new("The fastest of those tried here.", "试运行中最快。")
}

fn speed(layout: &Layout) -> Speed {
    let Prediction { generation, prompt, .. } = layout.prediction;
    Speed {
        generation_full_tokens_per_s: layout.full_rate,
        generation_tokens_per_s: generation.likely,
        generation_low_tokens_per_s: generation.low,
        generation_high_tokens_per_s: generation.high,
        prompt_tokens_per_s: prompt.likely,
        prompt_low_tokens_per_s: prompt.low,
        prompt_high_tokens_per_s: prompt.high,
    }
}

/// Why a card that could take its share does not.
fn cpu_computes(split: &Split) -> Text {
    let alone = Text::new("the processor computes alone", "仅由处理器计算");
    let Text { en, zh } = split.gpu.unusable.as_ref().unwrap_or(&alone);
    Text::new(
        format!(
            "The graphics card is not used: {en}. Speed and memory are given for the processor, with the whole model in \
             memory; the card's side shows what it could take over."
        ),
        format!(
            "未使用显卡：{zh}。速度和内存均按处理器计算、整个模型放在内存中给出；显卡一侧显示的是它可以承担的部分。"
        ),
    )
}

fn verdict_words(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Fast => ("Fast", "很快"),
        Verdict::RunsWell => ("Runs well", "运行流畅"),
        Verdict::Slow => ("Slow", "较慢"),
        Verdict::Tight => ("Tight", "偏紧"),
        Verdict::TooLarge => ("Too large", "放不下"),
    }
}

/// A rate without more digits than a prediction deserves, rounded down so that it promises no better verdict than it has:
/// `17 tokens/s` and `17 个词元`, for sentences that say "about".
pub(super) fn about(tokens_per_s: f64) -> (String, String) {
    if tokens_per_s < 1.0 {
        let rounded = (tokens_per_s * 10.0).floor().max(1.0) / 10.0;
        return (format!("{rounded:.1}{NBSP}tokens/s"), format!("{rounded:.1}{NBSP}个词元"));
    }
    let step = if tokens_per_s < 100.0 { 1.0 } else { 10.0 };
    let rounded = (tokens_per_s / step).floor() * step;
    let unit = if rounded == 1.0 { "token/s" } else { "tokens/s" };
    (format!("{rounded}{NBSP}{unit}"), format!("{rounded}{NBSP}个词元"))
}

/// `8k`, or the number itself.
pub(crate) fn tokens_short(n: u32) -> String {
    if n >= 1024 && n.is_multiple_of(1024) { format!("{}k", n / 1024) } else { grouped(n) }
}

/// Digits in groups of three.
pub(super) fn grouped(n: u32) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn counted(n: u32, one: &str, many: &str, zh: &str) -> Text {
    let unit = if n == 1 { one } else { many };
    Text::new(format!("{n}{NBSP}{unit}"), format!("{n}{NBSP}{zh}"))
}

/// Quoted for a shell where a plain word would not do.
fn shell_word(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+/".contains(c));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_no_more_digits_than_they_deserve() {
        for (rate, en, zh) in [
            (0.0, "0.1 tokens/s", "0.1 个词元"),
            (0.42, "0.4 tokens/s", "0.4 个词元"),
            (0.99, "0.9 tokens/s", "0.9 个词元"),
            (1.0, "1 token/s", "1 个词元"),
            (7.99, "7 tokens/s", "7 个词元"),
            (8.0, "8 tokens/s", "8 个词元"),
            (17.4, "17 tokens/s", "17 个词元"),
            (19.99, "19 tokens/s", "19 个词元"),
            (187.0, "180 tokens/s", "180 个词元"),
        ] {
            let with_nbsp = |text: &str| text.replacen(' ', "\u{a0}", 1);
            assert_eq!(about(rate), (with_nbsp(en), with_nbsp(zh)));
        }
    }

    #[test]
    fn token_counts_read_well() {
        let cases = [(8192, "8k"), (262_144, "256k"), (1000, "1,000"), (512, "512"), (0, "0")];
        for (n, text) in cases {
            assert_eq!(tokens_short(n), text);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn file_names_survive_a_shell() {
        assert_eq!(shell_word("Qwen3.6-Q4_K_M.gguf"), "Qwen3.6-Q4_K_M.gguf");
        assert_eq!(shell_word("my model's.gguf"), r"'my model'\''s.gguf'");
    }
}
