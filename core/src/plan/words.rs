//! A plan in words, in both languages: headline, a line per choice, warnings, and llama.cpp's command.
use super::memory::ContextWhy;
use super::parts::gpu_bar;
use super::place::Split;
use super::speed::{Prediction, Range};
use super::{Draft, GPU_BATCH, ThreadsWhy};
use crate::wire::{GpuProbe, Plan, PlanChoice, Speed, Text, Verdict};

pub(super) use crate::error::size;

/// Joins a number and its unit.
const NBSP: char = '\u{a0}';

impl Draft<'_> {
    /// Puts everything into words.
    pub(super) fn into_plan(self) -> Plan {
        Plan {
            architecture: self.facts.architecture().unwrap_or_default().to_owned(),
            quant: self.facts.quant_label(),
            verdict: self.verdict,
            headline: self.headline(),
            n_layers: self.sizes.n_layers(),
            n_gpu_layers: self.split.as_ref().map_or(0, Split::n_gpu_layers),
            n_cpu_moe_layers: self.split.as_ref().map_or(0, |split| split.n_cpu_moe_layers(&self.sizes)),
            n_threads: self.threads.n,
            context_length: self.memory.context,
            max_context_length: self.sizes.max_context,
            n_batch: self.n_batch,
            kv_type: "f16".to_owned(),
            lines: self.lines(),
            choices: self.choices(),
            gpu_bar: self.split.as_ref().map(gpu_bar),
            ram_bar: self.ram_bar(),
            speed: speed(&self.prediction),
            cpu_computes: self.split.as_ref().map(|_| cpu_computes()),
            warnings: self.warnings(),
            llama_cpp_command: self.llama_cpp_command(),
        }
    }

    fn headline(&self) -> Text {
        let (en, zh) = verdict_words(self.verdict);
        if self.verdict == Verdict::TooLarge && self.memory.missing_bytes > 0 {
            let short = size(self.memory.missing_bytes);
            return Text::new(format!("{en}: {short} short of memory"), format!("{zh}：内存还差 {short}"));
        }
        let context = tokens_short(self.memory.context);
        let (rate_en, rate_zh) = about(self.prediction.generation.likely);
        Text::new(
            format!("{en}: about {rate_en}, {context}{NBSP}context"),
            format!("{zh}：每秒约 {rate_zh}，{context}{NBSP}上下文"),
        )
    }

    fn choices(&self) -> Vec<PlanChoice> {
        let choice = |what, why| PlanChoice { what, why };
        vec![
            choice(counted(self.threads.n, "thread", "threads", "个线程"), self.why_threads()),
            choice(
                Text::new(
                    format!("Context of {} tokens", grouped(self.memory.context)),
                    format!("上下文 {} 个词元", grouped(self.memory.context)),
                ),
                self.why_context(),
            ),
            choice(
                Text::new("KV cache in f16", "KV 缓存为 f16"),
                Text::new("Half the size of f32 at the same quality.", "大小是 f32 的一半，质量相同。"),
            ),
            choice(
                Text::new(
                    format!("Prompt read {} tokens at a time", self.n_batch),
                    format!("提示每次读入 {} 个词元", self.n_batch),
                ),
                Text::new("Short enough to stop at once.", "足够短，可随时停止。"),
            ),
            choice(
                Text::new("File mapped, not copied", "映射文件，不复制"),
                Text::new(
                    "It loads at once, and other programs can have the memory back.",
                    "立即载入，其他程序需要时可收回内存。",
                ),
            ),
        ]
    }

    fn why_threads(&self) -> Text {
        match self.threads.why {
            ThreadsWhy::Wish => Text::new("As wished.", "按你的设置。"),
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
        self.hardware.cpu.n_performance_cores < self.hardware.cpu.n_physical_cores
    }

    fn why_context(&self) -> Text {
        let cost = size(self.memory.kv_bytes);
        match self.memory.context_why {
            ContextWhy::Default => Text::new(
                format!("Room for a long conversation; it costs {cost}."),
                format!("足够长时间对话，占 {cost}。"),
            ),
            ContextWhy::Wish => Text::new(format!("As wished; it costs {cost}."), format!("按你的设置，占 {cost}。")),
            ContextWhy::Trained => Text::new("The model was trained for no more.", "模型训练时的上下文就是这么长。"),
            ContextWhy::Room if self.memory.missing_bytes > 0 => Text::new(
                "Memory is short already; this leaves most of it to the model.",
                "内存已经不足，这样能给模型留出最多。",
            ),
            ContextWhy::Room => {
                Text::new("A longer one would push the model out of memory.", "再长就会把模型挤出内存。")
            }
            ContextWhy::NearestToWish => {
                Text::new("The nearest to the wish that works here.", "最接近你的设置且可行的长度。")
            }
        }
    }

    fn warnings(&self) -> Vec<Text> {
        [
            self.unmet_context(),
            self.unmet_layers(),
            self.unmet_threads(),
            self.read_from_disk(),
            self.slow_cpu(),
            self.failing_driver(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn unmet_context(&self) -> Option<Text> {
        let wish = self.wishes.context_length.filter(|wish| *wish != self.memory.context)?;
        let is_beyond_model = wish > self.sizes.max_context;
        let (wish, got) = (grouped(wish), grouped(self.memory.context));
        if is_beyond_model {
            let most = grouped(self.sizes.max_context);
            return Some(Text::new(
                format!("The model itself takes no more than {most} tokens, not {wish}."),
                format!("该模型本身最多支持 {most} 个词元，而非 {wish} 个。"),
            ));
        }
        Some(Text::new(
            format!("A context of {wish} tokens does not work here; {got} does."),
            format!("{wish} 个词元的上下文在这里不可行，改为 {got} 个。"),
        ))
    }

    fn unmet_layers(&self) -> Option<Text> {
        let wish = self.wishes.n_gpu_layers.filter(|wish| *wish > 0)?;
        match &self.split {
            None => Some(Text::new(
                "No layers can go on a card here; all stay in memory.",
                "这里没有层可以放到显卡上，全部留在内存。",
            )),
            Some(split) => split.unmet_wish.map(|_| {
                let got = split.n_gpu_layers();
                Text::new(
                    format!("{wish} layers do not fit on the card; {got} do."),
                    format!("显卡放不下 {wish} 层，改为 {got} 层。"),
                )
            }),
        }
    }

    fn unmet_threads(&self) -> Option<Text> {
        let wish = self.wishes.n_threads.filter(|wish| *wish != self.threads.n)?;
        let got = self.threads.n;
        Some(Text::new(
            format!("{wish} threads are not possible here; {got} are used."),
            format!("这里无法使用 {wish} 个线程，改为 {got} 个。"),
        ))
    }

    fn read_from_disk(&self) -> Option<Text> {
        let missing = self.memory.missing_bytes;
        (missing > 0).then(|| {
            let missing = size(missing);
            Text::new(
                format!("{missing} of the model finds no room in memory and is read from disk again and again."),
                format!("模型有 {missing} 放不进内存，需要反复从磁盘读取。"),
            )
        })
    }

    fn slow_cpu(&self) -> Option<Text> {
        (self.hardware.cpu.isa == "scalar").then(|| {
            Text::new(
                "This processor lacks AVX2: everything takes many times longer.",
                "此处理器不支持 AVX2，速度会慢很多倍。",
            )
        })
    }

    fn failing_driver(&self) -> Option<Text> {
        let GpuProbe::Failed { reason } = &self.hardware.gpu_probe else { return None };
        Some(Text::new(
            format!("The graphics driver answers with an error: {reason}"),
            format!("显卡驱动返回错误：{reason}"),
        ))
    }

    fn llama_cpp_command(&self) -> String {
        let file = self.facts.files.first().map(|file| file.name.as_str()).filter(|name| !name.is_empty());
        let mut command = format!("llama-server -m {}", shell_word(file.unwrap_or("model.gguf")));
        let mut push = |flag: &str, value: u32| command.push_str(&format!(" {flag} {value}"));
        push("-ngl", self.split.as_ref().map_or(0, Split::n_gpu_layers));
        if let Some(split) = &self.split {
            let n_cpu_moe = split.n_cpu_moe_flag(&self.sizes);
            if n_cpu_moe > 0 {
                push("--n-cpu-moe", n_cpu_moe);
            }
            if self.hardware.gpus.len() > 1 {
                push("-sm none -mg", split.gpu.index);
            }
        }
        push("-c", self.memory.context);
        push("-t", self.threads.n);
        push("-ub", if self.split.is_some() { GPU_BATCH } else { self.n_batch });
        command
    }
}

fn speed(prediction: &Prediction) -> Speed {
    let Range { low, likely, high } = prediction.generation;
    Speed {
        generation_tokens_per_s: likely,
        generation_low_tokens_per_s: low,
        generation_high_tokens_per_s: high,
        prompt_tokens_per_s: prediction.prompt,
    }
}

fn cpu_computes() -> Text {
    Text::new(
        "This version computes on the processor, with the whole model in memory; speed and memory are given for that. \
         The graphics card shows what it will take over.",
        "当前版本由处理器计算，整个模型放在内存中，速度和内存均按此给出；显卡一侧显示的是今后由它承担的部分。",
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

/// A rate without more digits than a prediction deserves: `17 tokens/s` and `17 个词元`, for sentences that say "about".
pub(super) fn about(tokens_per_s: f64) -> (String, String) {
    if tokens_per_s < 0.75 {
        let rounded = tokens_per_s.max(0.1);
        return (format!("{rounded:.1}{NBSP}tokens/s"), format!("{rounded:.1}{NBSP}个词元"));
    }
    let step = if tokens_per_s < 100.0 { 1.0 } else { 10.0 };
    let rounded = (tokens_per_s / step).round() * step;
    let unit = if rounded == 1.0 { "token/s" } else { "tokens/s" };
    (format!("{rounded}{NBSP}{unit}"), format!("{rounded}{NBSP}个词元"))
}

/// `8k`, or the number itself.
pub(super) fn tokens_short(n: u32) -> String {
    if n >= 1024 && n.is_multiple_of(1024) { format!("{}k", n / 1024) } else { grouped(n) }
}

/// Digits in groups of three.
fn grouped(n: u32) -> String {
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
            (0.8, "1 token/s", "1 个词元"),
            (17.4, "17 tokens/s", "17 个词元"),
            (187.0, "190 tokens/s", "190 个词元"),
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
