//! The text file's contents. A line that cannot be read is a mistake of the test's author: it panics.

/// What the library answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Driver version.
    pub driver: String,
    /// Cards, by index.
    pub cards: Vec<Card>,
    failures: Vec<Failure>,
}

/// A card.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Name.
    pub name: String,
    /// Total VRAM.
    pub total_bytes: u64,
    /// Free VRAM.
    pub free_bytes: u64,
    /// Load; absent: the card does not tell.
    pub load_percent: Option<u32>,
    /// Temperature; absent: the card does not tell.
    pub temperature_c: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
struct Failure {
    call: String,
    code: u32,
    card: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse("card 6 GiB free 5.5 GiB load 3 temperature 41 name Simulated 6 GB card")
    }
}

impl Settings {
    /// Reads the file's text; see the crate's documentation.
    ///
    /// Panics on what it does not know.
    pub fn parse(text: &str) -> Self {
        let mut settings = Self { driver: "580.95.05".to_owned(), cards: Vec::new(), failures: Vec::new() };
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let mut words = line.split_whitespace();
            match words.next() {
                None => {}
                // For the simulated driver, which reads the same lines.
                Some("cuda") => {}
                Some("driver") => settings.driver = words.collect::<Vec<_>>().join(" "),
                Some("card") => settings.cards.push(card(words)),
                Some("fail") => settings.failures.push(failure(words)),
                Some(other) => panic!("`{other}` is no setting"),
            }
        }
        settings
    }

    /// The code a call must answer, if it is told to fail.
    pub(crate) fn failure(&self, call: &str, card: Option<usize>) -> Option<u32> {
        let is_meant = |failure: &&Failure| failure.call == call && (failure.card.is_none() || failure.card == card);
        self.failures.iter().find(is_meant).map(|failure| failure.code)
    }
}

fn card<'a>(mut words: impl Iterator<Item = &'a str>) -> Card {
    let total_bytes = gib(&mut words);
    let mut card = Card {
        name: "Simulated card".to_owned(),
        total_bytes,
        free_bytes: total_bytes,
        load_percent: None,
        temperature_c: None,
    };
    while let Some(word) = words.next() {
        match word {
            "free" => card.free_bytes = gib(&mut words),
            "load" => card.load_percent = Some(number(&mut words)),
            "temperature" => card.temperature_c = Some(number(&mut words)),
            // For the simulated driver.
            "compute" | "multiprocessors" | "lost-after" => drop(words.next()),
            "name" => card.name = words.by_ref().collect::<Vec<_>>().join(" "),
            other => panic!("`{other}` is nothing a card has"),
        }
    }
    card
}

fn failure<'a>(mut words: impl Iterator<Item = &'a str>) -> Failure {
    let call = words.next().expect("`fail` names a call").to_owned();
    let code = number(&mut words);
    let card = match words.next() {
        Some("card") => Some(number(&mut words)),
        // The simulated driver's calls can succeed a few times before.
        None | Some("after") => None,
        Some(other) => panic!("only `card` may follow the code, not `{other}`"),
    };
    Failure { call, code, card }
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
