//! Who wrote and read each byte of a block's shared memory since the last barrier.
//!
//! Kept per word of four bytes; a word that is accessed in parts is kept per byte from then on.

/// A thread that accesses shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Visitor {
    /// Index within the block.
    pub(crate) thread: u32,
    /// How often its warp was synchronised.
    pub(crate) warp_epoch: u32,
}

impl Visitor {
    fn id(self) -> u16 {
        self.thread as u16 + 1
    }
}

/// What happened to a byte or word.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Thread plus one, or one of the below; zero: never written.
    writer: u16,
    /// Thread plus one, or one of the below.
    reader: u16,
    write_epoch: u32,
    write_warp_epoch: u32,
    read_epoch: u32,
}

/// A copy is on its way.
const IN_FLIGHT: u16 = u16::MAX;
/// Atomic operations of any threads.
const ATOMIC: u16 = u16::MAX - 1;
/// Marks are kept per byte, at index `write_epoch`.
const SPLIT: u16 = u16::MAX - 2;
/// Read by several warps.
const SEVERAL_WARPS: u16 = u16::MAX;
/// Read by several threads of one warp: this and its index.
const SEVERAL_OF_WARP: u16 = 0x8000;

/// Marks of a block's shared memory.
pub(crate) struct Shadow {
    words: Vec<Mark>,
    split: Vec<[Mark; 4]>,
    /// Grows with each barrier.
    epoch: u32,
}

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    Read,
    Write,
    Atomic,
    /// Begins an asynchronous write.
    Launch,
    /// Ends it.
    Land,
}

impl Shadow {
    /// Marks for as many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { words: vec![Mark::default(); bytes.div_ceil(4)], split: Vec::new(), epoch: 1 }
    }

    /// Forgets everything: another block begins.
    pub(crate) fn reset(&mut self) {
        self.words.fill(Mark::default());
        self.split.clear();
        self.epoch = 1;
    }

    /// All threads of the block met.
    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Checks and marks an access that lies within the memory.
    #[inline]
    pub(crate) fn visit(&mut self, at: usize, bytes: usize, who: Visitor, act: Act) -> Result<(), String> {
        let end = at + bytes;
        let mut at = at;
        while at < end {
            let word = at / 4;
            let upto = end.min(word * 4 + 4);
            let mark = &mut self.words[word];
            if mark.writer != SPLIT && upto - at == 4 {
                visit(mark, self.epoch, who, act)?;
            } else {
                if mark.writer != SPLIT {
                    let whole = *mark;
                    *mark = Mark { writer: SPLIT, write_epoch: self.split.len() as u32, ..Mark::default() };
                    self.split.push([whole; 4]);
                }
                let bytes = &mut self.split[mark.write_epoch as usize];
                for mark in &mut bytes[at % 4..at % 4 + (upto - at)] {
                    visit(mark, self.epoch, who, act)?;
                }
            }
            at = upto;
        }
        Ok(())
    }
}

#[inline]
fn visit(mark: &mut Mark, epoch: u32, who: Visitor, act: Act) -> Result<(), String> {
    let me = who.id();
    let warp = |id: u16| (id - 1) / 32;
    if mark.writer == IN_FLIGHT {
        if act == Act::Land {
            (mark.writer, mark.write_epoch, mark.write_warp_epoch) = (me, epoch, who.warp_epoch);
            return Ok(());
        }
        return Err(format!("{} of shared memory while an asynchronous copy to it is on its way", verb(act)));
    }
    // What this warp's other lanes wrote is seen after a synchronisation of the warp only.
    let written = mark.writer != 0 && mark.writer != me && mark.write_epoch == epoch;
    let race = written
        && match (mark.writer, act) {
            (ATOMIC, Act::Atomic) => false,
            (ATOMIC, _) => true,
            (writer, Act::Read | Act::Atomic) => warp(writer) != warp(me) || mark.write_warp_epoch == who.warp_epoch,
            (writer, _) => warp(writer) != warp(me),
        };
    if race {
        let by = if mark.writer == ATOMIC {
            "an atomic operation".to_owned()
        } else {
            format!("write by thread {}", mark.writer - 1)
        };
        return Err(format!("shared-memory race: {} after {by} without a barrier", verb(act)));
    }
    if act == Act::Read {
        if mark.writer == 0 {
            return Err("read of uninitialised shared memory".to_owned());
        }
        mark.reader = match mark.reader {
            reader if mark.read_epoch != epoch || reader == 0 || reader == me => me,
            SEVERAL_WARPS => SEVERAL_WARPS,
            reader => {
                let theirs = if reader & SEVERAL_OF_WARP != 0 { reader & !SEVERAL_OF_WARP } else { warp(reader) };
                if theirs == warp(me) { SEVERAL_OF_WARP | theirs } else { SEVERAL_WARPS }
            }
        };
        mark.read_epoch = epoch;
        return Ok(());
    }
    if act == Act::Atomic && mark.writer == 0 {
        return Err("atomic operation on uninitialised shared memory".to_owned());
    }
    if mark.reader != 0 && mark.read_epoch == epoch {
        let by = match mark.reader {
            SEVERAL_WARPS => Some("several threads".to_owned()),
            reader if reader & SEVERAL_OF_WARP != 0 => (reader & !SEVERAL_OF_WARP != warp(me))
                .then(|| format!("threads of warp {}", reader & !SEVERAL_OF_WARP)),
            reader => (warp(reader) != warp(me)).then(|| format!("thread {}", reader - 1)),
        };
        if let Some(by) = by {
            return Err(format!("shared-memory race: {} after read by {by} without a barrier", verb(act)));
        }
    }
    mark.writer = match act {
        Act::Atomic => ATOMIC,
        Act::Launch => IN_FLIGHT,
        _ => me,
    };
    (mark.write_epoch, mark.write_warp_epoch) = (epoch, who.warp_epoch);
    Ok(())
}

fn verb(act: Act) -> &'static str {
    match act {
        Act::Read => "read",
        Act::Write | Act::Land => "write",
        Act::Atomic => "atomic operation",
        Act::Launch => "asynchronous copy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(thread: u32) -> Visitor {
        Visitor { thread, warp_epoch: 1 }
    }

    #[test]
    fn a_read_needs_a_barrier_after_another_threads_write() {
        let mut shadow = Shadow::new(16);
        shadow.visit(0, 4, by(0), Act::Write).unwrap();
        shadow.visit(0, 4, by(0), Act::Read).unwrap();
        assert!(shadow.visit(0, 4, by(40), Act::Read).unwrap_err().contains("read after write by thread 0"));
        shadow.barrier();
        shadow.visit(0, 4, by(40), Act::Read).unwrap();
    }

    #[test]
    fn a_write_needs_a_barrier_after_any_of_several_readers() {
        let mut shadow = Shadow::new(16);
        shadow.visit(0, 4, by(0), Act::Write).unwrap();
        shadow.barrier();
        for thread in [0, 40, 41] {
            shadow.visit(0, 4, by(thread), Act::Read).unwrap();
        }
        assert!(shadow.visit(0, 4, by(41), Act::Write).unwrap_err().contains("write after read by several threads"));
    }

    #[test]
    fn bytes_of_a_word_are_told_apart() {
        let mut shadow = Shadow::new(16);
        for byte in 0..4 {
            shadow.visit(byte, 1, by(byte as u32 * 32), Act::Write).unwrap();
        }
        assert!(shadow.visit(0, 4, by(0), Act::Read).is_err());
        shadow.barrier();
        shadow.visit(0, 4, by(0), Act::Read).unwrap();
        assert!(shadow.visit(4, 2, by(0), Act::Read).unwrap_err().contains("uninitialised"));
    }

    #[test]
    fn atomic_operations_race_with_plain_ones_only() {
        let mut shadow = Shadow::new(4);
        shadow.visit(0, 4, by(0), Act::Write).unwrap();
        shadow.barrier();
        shadow.visit(0, 4, by(0), Act::Atomic).unwrap();
        shadow.visit(0, 4, by(99), Act::Atomic).unwrap();
        assert!(shadow.visit(0, 4, by(7), Act::Read).unwrap_err().contains("atomic"));
    }

    #[test]
    fn a_copy_on_its_way_is_not_to_be_read() {
        let mut shadow = Shadow::new(16);
        shadow.visit(0, 16, by(3), Act::Launch).unwrap();
        assert!(shadow.visit(0, 4, by(3), Act::Read).unwrap_err().contains("on its way"));
        shadow.visit(0, 16, by(3), Act::Land).unwrap();
        shadow.visit(0, 4, by(3), Act::Read).unwrap();
    }
}
