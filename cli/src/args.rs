//! The command line: what can be said, and its help.
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use tandem_core::wire::Program;
use tandem_engine::cpu::Isa;
use tandem_engine::kv::{KvType, KvTypes};

use crate::terminal::Lang;

/// Options of llama.cpp that are not of the usual form, and what they are called here.
const ALIASES: [(&str, &str); 3] = [("-ngl", "--gpu-layers"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// Runs large language models on this computer.
#[derive(Debug, Parser)]
#[command(name = "tandem", version, about, after_help = crate::exit::HELP)]
pub(crate) struct Args {
    /// Folder for models, chats and settings, instead of the usual one
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Address of the hub or of a mirror
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) hub_url: Option<String>,
    /// Language of messages; by default that of the system
    #[arg(long, global = true, value_enum)]
    pub(crate) lang: Option<Lang>,
    /// Print JSON, failures included
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log more to standard error; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// NVML library to use instead of the system's
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub(crate) nvml: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line; ends the process if it makes no sense.
    pub(crate) fn read() -> Self {
        let real = |arg: OsString| {
            let alias = ALIASES.iter().find(|(alias, _)| arg == *alias);
            alias.map_or(arg, |(_, name)| name.into())
        };
        let args: Vec<OsString> = std::env::args_os().map(real).collect();
        Self::try_parse_from(&args)
            .unwrap_or_else(|error| crate::exit::instead_of_a_command(&error, args.iter().any(|arg| arg == "--json")))
    }
}

/// Tokens of a measurement: more than any model's context, and little enough to be added up.
fn n_tokens() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=1 << 24)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Download a model; an interrupted download goes on where it was
    Pull(Pull),
    /// List the models on this computer
    List,
    /// Use model files and folders where they lie, those of other programs too
    Add(Add),
    /// Compute the SHA256 of a model's files and compare it with what was promised
    Verify(Verify),
    /// Take a model out of the library, or a folder out of use; own files go to the trash
    Remove(Remove),
    /// Say whether a model will run here, how fast and why, before it is downloaded
    Plan(Plan),
    /// Ask a model: a prompt as argument, on standard input, or one after another
    Run(Run),
    /// Measure how fast a model reads and writes
    Bench(Bench),
    /// Measure how fast this computer is, for plans: a few seconds
    Calibrate,
    /// Show what was predicted for past answers and what came of it
    Predictions(Predictions),
    /// Try plans near the best one on the real engine and keep the fastest, for half a minute or so
    Tune(Tune),
    /// Turn texts into token ids: JSON lines {"text": …} in, {"ids": […]} out
    Tokenize(Tokenize),
    /// Write the logits at every position of a list of tokens
    Logits(Logits),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pull {
    /// Repo on the hub: publisher/name
    pub(crate) repo: String,
    /// Version, such as Q4_K_M; by default the best for this computer
    #[arg(long)]
    pub(crate) quant: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// GGUF files, and folders with such files
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// A GGUF file or a model of the library
    pub(crate) model: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// A model of the library, or a folder in use
    pub(crate) model: String,
    /// Delete the files of this program too; may be given several times
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub(crate) of: Vec<OtherProgram>,
}

/// A program whose files may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OtherProgram {
    LmStudio,
    Ollama,
    HuggingFace,
    Jan,
    LlamaCpp,
    /// None: a file or folder that was added by hand
    Other,
}

impl From<OtherProgram> for Program {
    fn from(program: OtherProgram) -> Self {
        match program {
            OtherProgram::LmStudio => Self::LmStudio,
            OtherProgram::Ollama => Self::Ollama,
            OtherProgram::HuggingFace => Self::HuggingFace,
            OtherProgram::Jan => Self::Jan,
            OtherProgram::LlamaCpp => Self::LlamaCpp,
            OtherProgram::Other => Self::Other,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// A GGUF file, a model of the library, or a repo on the hub
    pub(crate) model: String,
    /// Only this version of a repo
    #[arg(long)]
    pub(crate) quant: Option<String>,
    /// Read the headers of a repo again, not those kept of the last day
    #[arg(long)]
    pub(crate) read_again: bool,
    #[command(flatten)]
    pub(crate) wishes: Wishes,
    #[command(flatten)]
    pub(crate) machine: Machine,
}

/// Another machine than this one; what is not said is as here.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Another machine")]
pub(crate) struct Machine {
    /// Memory of its NVIDIA card, such as 6GiB; 0 for none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) gpu: Option<u64>,
    /// What is free of it; by default all but 0.5 GiB
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "gpu")]
    pub(crate) gpu_free: Option<u64>,
    /// Name of the card, for its speed
    #[arg(long, value_name = "NAME", requires = "gpu")]
    pub(crate) gpu_name: Option<String>,
    /// Its main memory, such as 16GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) ram: Option<u64>,
    /// What is free of it; by default all but 4 GiB, or 3 GiB of 8 or less
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "ram")]
    pub(crate) ram_free: Option<u64>,
    /// Its physical cores
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<u32>,
    /// Plan as if the card computed even where it cannot
    #[arg(long)]
    pub(crate) card_computes: bool,
}

fn at_least_0(text: &str) -> Result<f32, String> {
    number(text).filter(|n| *n >= 0.0).ok_or_else(|| "a number of 0 or more is wanted".to_owned())
}

fn share(text: &str) -> Result<f32, String> {
    number(text).filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| "a number from 0 to 1 is wanted".to_owned())
}

fn number(text: &str) -> Option<f32> {
    text.parse().ok().filter(|n: &f32| n.is_finite())
}

/// Bytes of `6GiB`, `6G`, `512M` or plain `6`, which are GiB; decimal and binary names both mean the binary unit, as everywhere here.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
        "" | "g" | "gb" | "gib" => 1u64 << 30,
        "m" | "mb" | "mib" => 1 << 20,
        "t" | "tb" | "tib" => 1 << 40,
        other => return Err(format!("`{other}` is no unit of memory: write 6GiB or 512MiB")),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if (0.0..=1e6).contains(&n) => Ok((n * unit as f64) as u64),
        _ => Err(format!("`{text}` is no size: write 6GiB or 512MiB")),
    }
}

/// What a plan must respect.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Wishes {
    /// Context length in tokens
    #[arg(long = "ctx", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context_length: Option<u32>,
    /// Layers on the graphics card, as llama.cpp counts them
    #[arg(long = "gpu-layers", value_name = "N")]
    pub(crate) n_gpu_layers: Option<u32>,
    /// Most layers whose experts may lie on the graphics card
    #[arg(long = "expert-layers", value_name = "N")]
    pub(crate) n_expert_layers: Option<u32>,
    /// Compute threads
    #[arg(long = "threads", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) n_threads: Option<u32>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0, or one for keys and one for values, such as q8_0/q4_0
    #[arg(long = "kv", value_name = "TYPE")]
    pub(crate) kv_types: Option<KvTypes>,
    /// What matters most where nothing else is fixed
    #[arg(long, value_enum, default_value = "balanced")]
    pub(crate) aim: Aim,
}

/// What matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Aim {
    /// A bit of everything
    Balanced,
    /// The longest context that fits in memory
    Context,
    /// The best quality that runs
    Quality,
    /// Speed
    Speed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// A GGUF file or a model of the library
    pub(crate) model: String,
    /// What to ask; without it standard input is read, and a terminal asks again and again
    pub(crate) prompt: Vec<String>,
    /// Instructions for the whole conversation
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// 0 always takes the likeliest token
    #[arg(long, value_parser = at_least_0)]
    pub(crate) temperature: Option<f32>,
    /// Keep the likeliest tokens; 0 keeps all
    #[arg(long)]
    pub(crate) top_k: Option<u32>,
    /// Keep the likeliest tokens up to this mass, 0 to 1
    #[arg(long, value_parser = share)]
    pub(crate) top_p: Option<f32>,
    /// Keep tokens with at least this share of the likeliest one's, 0 to 1
    #[arg(long, value_parser = share)]
    pub(crate) min_p: Option<f32>,
    /// Makes answers repeatable
    #[arg(long)]
    pub(crate) seed: Option<u32>,
    /// Most tokens of an answer
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_tokens: Option<u32>,
    #[command(flatten)]
    pub(crate) wishes: Wishes,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// A GGUF file or a model of the library
    pub(crate) model: String,
    /// Tokens of the prompt; 0 leaves prompts out
    #[arg(long, short = 'p', default_value = "512", value_name = "N", value_parser = n_tokens())]
    pub(crate) prompt: usize,
    /// Tokens to generate; 0 leaves generation out
    #[arg(long, short = 'n', default_value = "128", value_name = "N", value_parser = n_tokens())]
    pub(crate) generate: usize,
    /// Tokens that the context already holds; several, such as 0,2048,8192, are measured one after another
    #[arg(long, short = 'd', default_value = "0", value_delimiter = ',', value_name = "N,…", value_parser = n_tokens())]
    pub(crate) depth: Vec<usize>,
    /// How often to measure; medians are reported
    #[arg(long, short = 'r', default_value = "5", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) reps: u32,
    /// Compute threads; by default as planned
    #[arg(long, short = 't', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
    /// Most prompt tokens computed at once; by default as planned
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<NonZeroUsize>,
    /// Type of the keys in the KV cache: f32, f16, q8_0 or q4_0, by default as planned; also written -ctk
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_k: Option<KvType>,
    /// Type of the values in the KV cache; also written -ctv
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_v: Option<KvType>,
    /// Last layers that an NVIDIA card computes, the head counted as one more; also written -ngl. Never tried on a real card
    #[arg(long, default_value = "0", value_name = "N")]
    pub(crate) gpu_layers: usize,
    /// Leave the routed experts of those layers with the processor
    #[arg(long)]
    pub(crate) cpu_moe: bool,
    /// Instruction set: scalar, avx2, avxvnni or avx512vnni; by default the best one present
    #[arg(long)]
    pub(crate) isa: Option<Isa>,
    /// Show what each operation takes; measuring that costs a little
    #[arg(long)]
    pub(crate) profile: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Predictions {
    /// Make a table now: predict these GGUF files, run them, and show both
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub(crate) check: Vec<PathBuf>,
    /// Compute threads of the table; by default as planned
    #[arg(long, value_name = "N", requires = "check", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
    /// How often each file is predicted and run; medians are reported. With 0 memory alone is compared
    #[arg(long, default_value = "5", value_name = "N", requires = "check")]
    pub(crate) rounds: usize,
    /// One file of several: the program that started this one judges
    #[arg(long, hide = true, requires = "check")]
    pub(crate) is_part: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Tune {
    /// A GGUF file or a model of the library
    pub(crate) model: String,
    /// Context length in tokens that this holds for; by default that of loads without a wish
    #[arg(long = "ctx", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context_length: Option<u32>,
    /// Forget what was found for the model instead
    #[arg(long)]
    pub(crate) forget: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Tokenize {
    /// A GGUF file
    pub(crate) file: PathBuf,
    /// Turn special tokens written in a text into those tokens (the default)
    #[arg(long, overrides_with = "no_special")]
    pub(crate) special: bool,
    /// Leave special tokens in a text as text
    #[arg(long, overrides_with = "special")]
    pub(crate) no_special: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Logits {
    /// A GGUF file; it needs no tokenizer
    pub(crate) file: PathBuf,
    /// JSON file with a list of token ids
    #[arg(long, value_name = "IDS.JSON")]
    pub(crate) tokens: PathBuf,
    /// Where to write: little-endian f32, [n_tokens][n_vocab]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Tokens per step, cycled, such as 7,3,11; by default as many as fit a batch
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) chunks: Vec<NonZeroUsize>,
    /// Context length; by default 256, or the number of tokens if that is more
    #[arg(long = "ctx", value_name = "TOKENS")]
    pub(crate) context_length: Option<NonZeroUsize>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0, or one for keys and one for values, such as q8_0/q4_0
    #[arg(long = "kv", value_name = "TYPE", default_value = "f32")]
    pub(crate) kv_types: KvTypes,
    /// Type of the keys alone; also written -ctk
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_k: Option<KvType>,
    /// Type of the values alone; also written -ctv
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_v: Option<KvType>,
    /// Instruction set: scalar, avx2, avxvnni or avx512vnni; by default the best one present
    #[arg(long)]
    pub(crate) isa: Option<Isa>,
    /// Compute threads; by default one per performance core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("6GiB", Some(6 << 30)),
            ("6", Some(6 << 30)),
            ("0", Some(0)),
            ("5.5g", Some(11 << 29)),
            ("512MB", Some(512 << 20)),
            ("1T", Some(1 << 40)),
            ("6 parsecs", None),
            ("-1", None),
            ("NaN", None),
            ("", None),
        ] {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
    }
}
