//! What was done so far, for tests to compare with what was planned.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything since the start, or since it was configured last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Kernels launched, those of graphs too.
    pub n_launches: u64,
    /// Graphs launched.
    pub n_graphs: u64,
    /// Calls in which the host waited.
    pub n_waits: u64,
    /// Copies from the host to a card, and their bytes.
    pub n_to_device: u64,
    /// Bytes copied to a card.
    pub to_device_bytes: u64,
    /// Copies from a card to the host.
    pub n_to_host: u64,
    /// Bytes copied to the host.
    pub to_host_bytes: u64,
    /// Bytes copied within a card or between cards.
    pub within_bytes: u64,
    /// Bytes that are allocated on all cards now.
    pub allocated_bytes: u64,
    /// Most bytes that were.
    pub most_allocated_bytes: u64,
    /// Faults and hazards found.
    pub n_findings: u64,
    /// By name of the kernel.
    pub kernels: BTreeMap<String, KernelCounters>,
}

/// What one kernel did in all its launches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCounters {
    /// Launches.
    pub n_launches: u64,
    /// Instructions of whole warps.
    pub n_instructions: u64,
    /// Bytes that threads read, each time they did.
    pub read_bytes: u64,
    /// Bytes that threads wrote.
    pub written_bytes: u64,
    /// Bytes read, each once per launch, in sectors of 32.
    pub sectors_read_bytes: u64,
    /// Bytes written, each once per launch, in sectors of 32.
    pub sectors_written_bytes: u64,
}

impl Counters {
    /// As text, one line each.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut copy = self.clone();
        for (name, value) in copy.fields() {
            let _ = writeln!(text, "{name} {value}");
        }
        for (kernel, counters) in &mut copy.kernels {
            for (name, value) in counters.fields() {
                let _ = writeln!(text, "{kernel} {name} {value}");
            }
        }
        text
    }

    /// From text that `simcuda_counters` gave.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (fields, name, value) = match words[..] {
                [name, value] => (counters.fields(), name, value),
                [kernel, name, value] => (counters.kernels.entry(kernel.to_owned()).or_default().fields(), name, value),
                _ => panic!("`{line}` is no counter"),
            };
            let field = fields.into_iter().find(|(field, _)| *field == name).expect("names are those of fields");
            *field.1 = value.parse().expect("a number");
        }
        counters
    }

    fn fields(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("n_launches", &mut self.n_launches),
            ("n_graphs", &mut self.n_graphs),
            ("n_waits", &mut self.n_waits),
            ("n_to_device", &mut self.n_to_device),
            ("to_device_bytes", &mut self.to_device_bytes),
            ("n_to_host", &mut self.n_to_host),
            ("to_host_bytes", &mut self.to_host_bytes),
            ("within_bytes", &mut self.within_bytes),
            ("allocated_bytes", &mut self.allocated_bytes),
            ("most_allocated_bytes", &mut self.most_allocated_bytes),
            ("n_findings", &mut self.n_findings),
        ]
    }
}

impl KernelCounters {
    fn fields(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("n_launches", &mut self.n_launches),
            ("n_instructions", &mut self.n_instructions),
            ("read_bytes", &mut self.read_bytes),
            ("written_bytes", &mut self.written_bytes),
            ("sectors_read_bytes", &mut self.sectors_read_bytes),
            ("sectors_written_bytes", &mut self.sectors_written_bytes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_as_text() {
        let mut counters = Counters { n_launches: 3, to_host_bytes: 1 << 40, ..Counters::default() };
        counters.kernels.insert("f".to_owned(), KernelCounters { read_bytes: 7, ..KernelCounters::default() });
        assert_eq!(Counters::from_text(&counters.to_text()), counters);
    }
}
