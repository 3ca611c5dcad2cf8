//! What machine is simulated. A line that cannot be read is a mistake of the test's author: it panics.

/// What the driver answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Version of the driver, as `cuDriverGetVersion` gives it.
    pub version: i32,
    /// What `cuInit` answers.
    pub init: i32,
    /// Cards, by index.
    pub cards: Vec<Card>,
    /// When queued work is done.
    pub run: Run,
    /// Host threads that run a kernel's blocks.
    pub n_threads: usize,
    /// Whether a fault in a kernel makes every later call fail, as on a card.
    pub is_sticky: bool,
    /// Kernels whose names begin so store every number with the other sign.
    pub wrong: Option<String>,
    pub(crate) failures: Vec<Failure>,
}

/// When queued work is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    /// When somebody waits for it: what relies on luck is found.
    Late,
    /// Before the call returns.
    AtOnce,
}

/// A card.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Name.
    pub name: String,
    /// Total VRAM.
    pub total_bytes: u64,
    /// VRAM that others leave.
    pub free_bytes: u64,
    /// Compute capability times ten: 75 is 7.5.
    pub compute: u32,
    /// Multiprocessors.
    pub n_multiprocessors: i32,
    /// The card is lost after as many launches, with this code.
    pub lost_after: Option<(u64, i32)>,
}

/// A call that fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) call: String,
    pub(crate) code: i32,
    /// So many calls succeed before.
    pub(crate) after: u64,
}

/// CUDA_ERROR_UNKNOWN: what calls answer when a card is gone.
const LOST: i32 = 999;

impl Default for Settings {
    fn default() -> Self {
        Self::parse("card 6 GiB compute 8.0 name Simulated card")
    }
}

impl Settings {
    /// Reads the lines that the crate's documentation lists.
    ///
    /// Panics on what it does not know.
    pub fn parse(text: &str) -> Self {
        let mut settings = Self {
            version: 12000,
            init: 0,
            cards: Vec::new(),
            run: Run::Late,
            n_threads: 2,
            is_sticky: false,
            wrong: None,
            failures: Vec::new(),
        };
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            match words.next() {
                // The driver's own version is the management library's to tell.
                None | Some("driver") => {}
                Some("card") => settings.cards.push(card(words)),
                Some("fail") => settings.failures.push(failure(words)),
                Some("cuda") => settings.read(words),
                Some(other) => panic!("`{other}` is no setting"),
            }
        }
        settings
    }

    fn read<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) {
        match words.next() {
            Some("version") => self.version = number(&mut words),
            Some("init") => self.init = number(&mut words),
            Some("threads") => self.n_threads = number(&mut words),
            Some("sticky") => self.is_sticky = true,
            Some("wrong") => self.wrong = Some(words.next().expect("a kernel's name follows").to_owned()),
            Some("run") => {
                self.run = match words.next() {
                    Some("late") => Run::Late,
                    Some("at-once") => Run::AtOnce,
                    other => panic!("work is done late or at-once, not {other:?}"),
                }
            }
            other => panic!("{other:?} is no setting of the driver"),
        }
    }
}

fn card<'a>(mut words: impl Iterator<Item = &'a str>) -> Card {
    let total_bytes = gib(&mut words);
    let mut card = Card {
        name: "Simulated card".to_owned(),
        total_bytes,
        free_bytes: total_bytes,
        compute: 80,
        n_multiprocessors: 4,
        lost_after: None,
    };
    while let Some(word) = words.next() {
        match word {
            "free" => card.free_bytes = gib(&mut words),
            "compute" => card.compute = (number::<f64>(&mut words) * 10.0).round() as u32,
            "multiprocessors" => card.n_multiprocessors = number(&mut words),
            "lost-after" => card.lost_after = Some((number(&mut words), LOST)),
            // For the management library.
            "load" | "temperature" => drop(words.next()),
            "name" => card.name = words.by_ref().collect::<Vec<_>>().join(" "),
            other => panic!("`{other}` is nothing a card has"),
        }
    }
    card
}

fn failure<'a>(mut words: impl Iterator<Item = &'a str>) -> Failure {
    let call = words.next().expect("`fail` names a call").to_owned();
    let code = number(&mut words);
    let after = match words.next() {
        Some("after") => number(&mut words),
        // The management library can fail for one card.
        None | Some("card") => 0,
        Some(other) => panic!("`{other}` after a failure"),
    };
    Failure { call, code, after }
}

fn gib<'a>(words: &mut impl Iterator<Item = &'a str>) -> u64 {
    let size: f64 = number(words);
    assert_eq!(words.next(), Some("GiB"), "sizes are in GiB");
    (size * (1u64 << 30) as f64) as u64
}

fn number<'a, T: std::str::FromStr>(words: &mut impl Iterator<Item = &'a str>) -> T {
    let word = words.next().expect("a number follows");
    word.parse().unwrap_or_else(|_| panic!("`{word}` is no number"))
}
