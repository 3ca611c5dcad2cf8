//! Pre-tokenizers: how text is cut into pieces before merging, one row per rule. A row's patterns are applied in turn, each
//! to every piece so far; matches become pieces, and so do the gaps between them. Nothing is dropped.
//!
//! Patterns cut where llama.cpp cuts, which files are made for and tried with. For `gpt-4o`, `tekken`, `kimi-k2` and `youtu`
//! it only comes close to what the models' makers publish: combining marks are no part of a word there, and letters beyond
//! ASCII have no case. Contractions list both cases (full Unicode folding would let `ſ` be an `s`). The look-aheads in them are done by hand, so that a linear-time engine does the rest: with `\s+(?!\S)` a run
//! of spaces before something else gives its last character back, and `THOUSANDS` counts.

use regex_automata::{Input, meta::Regex};

use super::bpe::Spelling;

/// One rule and the values of `tokenizer.ggml.pre` that ask for it.
pub(super) struct PreRow {
    pub(super) names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// A piece that is a token as a whole is not merged up from bytes.
    pub(super) ignores_merges: bool,
    pub(super) spelling: Spelling,
    pub(super) bos: DefaultBos,
}

/// What is done about BOS when the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultBos {
    /// Not added.
    Off,
    /// Added.
    Added,
    /// There is none.
    Absent,
    /// There is none, and one that the file names is added even where the file says not to.
    Forced,
}

impl PreRow {
    /// Some conversions of Kimi K2 have none; its text is then spelled in bytes, as in llama.cpp.
    pub(super) fn may_lack_merges(&self) -> bool {
        self.names.contains(&"kimi-k2")
    }
}

const fn row(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreRow {
    PreRow { names, patterns, ignores_merges: false, spelling: Spelling::Bytes, bos: DefaultBos::Off }
}

const fn whole(row: PreRow) -> PreRow {
    PreRow { ignores_merges: true, ..row }
}

const fn characters(row: PreRow) -> PreRow {
    PreRow { spelling: Spelling::Characters, ..row }
}

const fn bos(row: PreRow, bos: DefaultBos) -> PreRow {
    PreRow { bos, ..row }
}

macro_rules! contractions {
    () => {
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
macro_rules! spaces {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
macro_rules! tail {
    () => {
        concat!(r" ?[^\s\p{L}\p{N}]+[\r\n]*|", spaces!())
    };
}
macro_rules! deepseek_words {
    () => {
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##
    };
}
macro_rules! cased {
    ($contraction:expr, $digits:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+",
            $contraction,
            r"|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*",
            $contraction,
            concat!("|", $digits, r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|", spaces!())
        )
    };
}
const LLAMA3: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|", tail!());
const QWEN2: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", tail!());
const QWEN35: &str =
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|", spaces!());
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const GPT4O: &str = cased!(concat!(contractions!(), "?"), r"\p{N}{1,3}");
const TEKKEN: &str = cased!("", r"\p{N}");
macro_rules! han {
    () => {
        r"\u{3400}-\u{4dbf}\u{4e00}-\u{9fff}\u{f900}-\u{faff}\u{20000}-\u{2a6df}\u{2a700}-\u{2ebef}\u{2f800}-\u{2fa1f}"
    };
}
const KIMI_K2: &str = concat!(
    concat!("[", han!(), r"]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^", han!(), "]]+"),
    contractions!(),
    r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    spaces!()
);
const CJK: &str = r"[一-龥぀-ゟ゠-ヿ]+";
/// Its first range holds spaces, which count as none of it.
const DEEPSEEK_CJK: &str = r"[ࠀ-龥가-퟿&&\S]+";
const DEEPSEEK3: &str = concat!(deepseek_words!(), r" ?[\p{P}\p{S}]+[\r\n]*|", spaces!());
/// The letters that DeepSeek LLM knows.
#[rustfmt::skip]
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// Between digits that have a multiple of three after them.
const THOUSANDS: &str = r"(?=(\d{3})+(?!\d))";

/// Every rule that the engine knows. Source: `llama-vocab.cpp` and `unicode.cpp` of llama.cpp.
#[rustfmt::skip]
pub(super) static PRE_ROWS: &[PreRow] = &[
    bos(whole(row(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"], &[LLAMA3])), DefaultBos::Added),
    row(&["dbrx", "smaug-bpe"], &[LLAMA3]),
    bos(whole(row(&["glm4", "glm5"], &[LLAMA3])), DefaultBos::Absent),
    bos(row(&["chatglm-bpe"], &[LLAMA3]), DefaultBos::Absent),
    row(&["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    row(&["qwen35"], &[QWEN35]),
    row(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    bos(whole(row(&["tekken"], &[TEKKEN])), DefaultBos::Added),
    row(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[r"\p{N}{1,3}", CJK, DEEPSEEK3]),
    row(&["deepseek-llm"], &[r"[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟、。]+", r"\s+$", DEEPSEEK_CJK, r"\p{N}+"]),
    row(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
    row(&["gpt-2", "phi-2", "modern-bert", "mellum", "gigachat", "a.x-4.0", "olmo", "mpt", "jais", "exaone4", "trillion", "granite-docling"], &[GPT2]),
    row(&["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"], &[r"\p{N}", GPT2]),
    row(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
    row(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    row(&["viking"], &[BLOOM, r"\p{N}"]),
    row(&["seed-coder"], &[concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|", spaces!())]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")]),
    whole(row(&["minicpm5"], &[r"\p{N}{1,3}", concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|", tail!())])),
    row(&["exaone-moe"], &[concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")]),
    row(&["spark2_5"], &[r"\p{N}{1,3}", CJK, concat!(deepseek_words!(), r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"), r"\p{N}"]),
    row(&["ufakzeka"], &[concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", tail!())]),
    row(&["laguna"], &[r"[^\n]+|[\n]+", QWEN2]),
    whole(row(&["youtu"], &[r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", contractions!(), r"?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|", spaces!())])),
    row(&["kimi-k2"], &[KIMI_K2]),
    row(&["superbpe"], &[r"\p{N}+", THOUSANDS]),
    bos(characters(row(&[GEMMA4], &[r"[^\n]+|\n+"])), DefaultBos::Forced),
    row(&[DEFAULT], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
];

/// The rule of files that name none.
pub(super) const DEFAULT: &str = "default";
/// The rule of files whose `tokenizer.ggml.model` is this, whatever they name.
pub(super) const GEMMA4: &str = "gemma4";

/// The row for a value of `tokenizer.ggml.pre`.
pub(super) fn find(name: &str) -> Option<&'static PreRow> {
    PRE_ROWS.iter().find(|row| row.names.contains(&name))
}

/// A rule, ready to cut text.
#[derive(Debug)]
pub(super) struct Splitter {
    stages: Vec<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// The engine's second pattern, if there is one, is the run of spaces that may give a character back.
    Pattern(Regex),
    /// Runs of digits are cut into threes from their end.
    Thousands,
}

impl Splitter {
    pub(super) fn new(row: &PreRow) -> Self {
        Self { stages: row.patterns.iter().map(|pattern| Stage::new(pattern)).collect() }
    }

    /// Calls `on_piece` with every piece of `text`, in order.
    pub(super) fn split<'t>(&self, text: &'t str, on_piece: &mut impl FnMut(&'t str)) {
        split_from(&self.stages, text, on_piece);
    }
}

fn split_from<'t>(stages: &[Stage], text: &'t str, on_piece: &mut impl FnMut(&'t str)) {
    match stages.split_first() {
        Some((stage, rest)) => stage.split(text, &mut |piece| split_from_dyn(rest, piece, on_piece)),
        None if text.is_empty() => {}
        None => on_piece(text),
    }
}

/// Ends the growth of types in the recursion above.
fn split_from_dyn<'t>(stages: &[Stage], text: &'t str, mut on_piece: &mut dyn FnMut(&'t str)) {
    split_from(stages, text, &mut on_piece);
}

impl Stage {
    fn new(pattern: &str) -> Self {
        if pattern == THOUSANDS {
            return Self::Thousands;
        }
        let head = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"].iter().find_map(|tail| pattern.strip_suffix(tail));
        let regex = match head {
            Some(head) => Regex::new_many(&[head, r"\s+"]),
            None => Regex::new(pattern),
        };
        Self::Pattern(regex.expect("the table's patterns are correct: a test builds each"))
    }

    fn split<'t>(&self, text: &'t str, on_piece: &mut dyn FnMut(&'t str)) {
        match self {
            Self::Pattern(regex) => split_by(regex, text, on_piece),
            Self::Thousands => split_thousands(text, on_piece),
        }
    }
}

fn split_by<'t>(regex: &Regex, text: &'t str, on_piece: &mut dyn FnMut(&'t str)) {
    let mut done = 0;
    while done < text.len() {
        let Some(found) = regex.search(&Input::new(text).range(done..)) else { break };
        if found.start() > done {
            on_piece(&text[done..found.start()]);
        }
        let mut end = found.end();
        if found.pattern().as_usize() == 1 && end < text.len() {
            let run = &text[found.start()..end];
            let last = run.char_indices().next_back().map_or(0, |(i, _)| i);
            if last > 0 {
                end = found.start() + last;
            }
        }
        on_piece(&text[found.start()..end]);
        done = end;
    }
    if done < text.len() {
        on_piece(&text[done..]);
    }
}

fn split_thousands<'t>(text: &'t str, on_piece: &mut dyn FnMut(&'t str)) {
    let mut done = 0;
    let mut cut = |at: usize| {
        if at > done {
            on_piece(&text[done..at]);
            done = at;
        }
    };
    let mut at = 0;
    for run in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let n_digits = run.bytes().take_while(u8::is_ascii_digit).count();
        (n_digits % 3..n_digits).step_by(3).for_each(|i| cut(at + i));
        at += run.len();
    }
    cut(text.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        Splitter::new(find(name).unwrap()).split(text, &mut |piece| pieces.push(piece));
        pieces
    }

    #[test]
    fn every_row_cuts_any_text_without_losing_a_byte() {
        let text = "It's 12345 x²\r\n\n  a\t \u{a0}\u{3000}中文，かな 한국어 e\u{301} 👩‍👩‍👧 f(x)=Σ/∂ \u{0}\u{200d}ǅ   ";
        for row in PRE_ROWS {
            for name in row.names {
                assert_eq!(pieces(name, text).concat(), text, "{name}");
                assert!(pieces(name, text).iter().all(|piece| !piece.is_empty()), "{name}");
                assert_eq!(pieces(name, ""), [""; 0]);
            }
        }
    }

    #[test]
    fn names_are_in_one_row_only() {
        let mut names: Vec<_> = PRE_ROWS.iter().flat_map(|row| row.names).collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }

    #[test]
    fn rows_differ_where_their_models_do() {
        for (name, text, expected) in [
            ("llama-bpe", "I'LL 12345  x", &["I", "'LL", " ", "123", "45", " ", " x"][..]),
            ("qwen2", "I'LL 123  x", &["I", "'LL", " ", "1", "2", "3", " ", " x"]),
            ("gpt-2", "I'LL 123  x", &["I", "'", "LL", " 123", " ", " x"]),
            ("smollm", "a 123\n\n\nb", &["a", " ", "1", "2", "3", "\n\n", "\n", "b"]),
            ("llama-bpe", "a\n\n\nb  \n c", &["a", "\n\n\n", "b", "  \n", " c"]),
            ("qwen35", "e\u{301}a!\u{301}", &["e\u{301}a", "!\u{301}"]),
            ("qwen2", "e\u{301}a", &["e", "\u{301}a"]),
            ("gpt-4o", "fooBar's HTTPServer", &["foo", "Bar's", " HTTPServer"]),
            ("tekken", "Bar's12", &["Bar", "'s", "1", "2"]),
            ("deepseek-v3", "12345中文ab.cd", &["123", "45", "中文", "ab", ".cd"]),
            ("default", "a,b 1234", &["a", ",", "b", " ", "123", "4"]),
            ("gpt-2", "a \u{a0} b", &["a", " \u{a0}", " b"]),
            ("gpt-2", "a   ", &["a", "   "]),
            ("superbpe", "a 1234567b 12 ", &["a ", "1", "234", "567", "b ", "12", " "]),
            ("kimi-k2", "fooBar汉字です/\n/x", &["fooBar", "汉字", "です", "/\n", "/x"]),
            ("deepseek-llm", "Привет, мир  12\n\n", &["Привет", ",", " мир", "  ", "12", "\n", "\n"]),
            ("gemma4", "a b\n\n c\r\n", &["a b", "\n\n", " c\r", "\n"]),
        ] {
            assert_eq!(pieces(name, text), expected, "{name}: {text:?}");
        }
    }
}
