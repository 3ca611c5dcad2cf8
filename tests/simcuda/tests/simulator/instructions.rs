//! Outcomes of instructions, against the host's own arithmetic.

use half::{bf16, f16};

use crate::machine::Machine;

const PTX: [(&str, &str); 2] = [
    ("card 6 GiB compute 7.5", include_str!("../../kernels/instructions_sm75.ptx")),
    ("card 6 GiB compute 8.0", include_str!("../../kernels/instructions_sm80.ptx")),
];

/// Numbers that look random and are the same every time.
pub(crate) fn numbers(n: usize) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn atomic_operations_of_many_blocks_are_all_done() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        let (blocks, threads) = (37, 96);
        let n = (blocks * threads) as usize;
        let x: Vec<i32> = numbers(n).iter().map(|number| (number % 2001) as i32 - 1000).collect();
        let (dx, count, most, sum, bits) = (
            machine.put(&x),
            machine.put(&[0u32]),
            machine.put(&[i32::MIN]),
            machine.put(&[0f32]),
            machine.put(&[0u64; 2]),
        );
        let kernel = machine.kernel(ptx, "counts");
        machine.run(kernel, (blocks, threads, 0), &[dx, count, most, sum, bits]).unwrap();
        assert_eq!(machine.get::<u32>(count, 1)[0] as usize, x.iter().filter(|&&x| x > 0).count());
        assert_eq!(machine.get::<i32>(most, 1)[0], *x.iter().max().unwrap());
        // Small integers: exact in any order.
        assert_eq!(machine.get::<f32>(sum, 1)[0], x.iter().sum::<i32>() as f32);
        assert_eq!(machine.get::<u64>(bits, 2), [u64::MAX, 9 << 32 | 7]);
    }
}

#[test]
fn votes_see_all_lanes() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        let x = numbers(32);
        let (dx, dy) = (machine.put(&x), machine.put(&[0u32; 128]));
        machine.run(machine.kernel(ptx, "votes"), (1, 32, 0), &[dx, dy]).unwrap();
        let ballot = x.iter().enumerate().fold(0u32, |ballot, (lane, x)| ballot | (x & 1) << lane);
        for (lane, y) in machine.get::<u32>(dy, 128).chunks(4).enumerate() {
            let before = (ballot & ((1 << lane) - 1)).count_ones();
            assert_eq!(y, [ballot, 1, if lane < 10 { 0x3ff } else { 0 }, before], "lane {lane}");
        }
    }
}

#[test]
fn shuffles_stay_in_their_segment() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        let x = numbers(32);
        let (dx, dy) = (machine.put(&x), machine.put(&[0u32; 128]));
        machine.run(machine.kernel(ptx, "shuffles"), (1, 32, 0), &[dx, dy]).unwrap();
        let y = machine.get::<u32>(dy, 128);
        for lane in 0..32 {
            let (first, within) = (lane / 8 * 8, lane % 8);
            let expected = [
                x[if within >= 1 { lane - 1 } else { lane }],
                x[if within + 3 < 8 { lane + 3 } else { lane }],
                x[first + 5],
                x[lane ^ 9],
            ];
            assert_eq!([y[lane], y[32 + lane], y[64 + lane], y[96 + lane]], expected, "lane {lane}");
        }
    }
}

#[test]
fn bit_operations_are_those_of_the_host() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        let x = numbers(96);
        let (dx, dy) = (machine.put(&x), machine.put(&[0u32; 256]));
        machine.run(machine.kernel(ptx, "bits"), (1, 32, 0), &[dx, dy]).unwrap();
        let y = machine.get::<u32>(dy, 256);
        for (x, y) in x.chunks(3).zip(y.chunks(8)) {
            let [a, b, c] = [x[0], x[1], x[2]];
            let pair = u64::from(b) << 32 | u64::from(a);
            let bytes = pair.to_le_bytes();
            let picked = std::array::from_fn(|at| bytes[(c >> (4 * at) & 7) as usize]);
            let shift = c & 31;
            let field = (0..7).fold(0u32, |field, bit| {
                let from = (shift + bit).min(31);
                field | (a >> from & 1) << bit
            });
            let extended = ((field << 25) as i32 >> 25) as u32;
            let mask = ((31u64 << shift) & 0xffff_ffff) as u32;
            let inserted = b & !mask | ((u64::from(a) << shift) as u32) & mask;
            // 0xd8 is the table of c ? b : a with a, b, c = 0xf0, 0xcc, 0xaa.
            let chosen = c & b | !c & a;
            let first_set = if c == 0 { 0 } else { c.trailing_zeros() + 1 };
            let high = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
            let signed = ((i64::from(b as i32) * i64::from(c as i32)) >> 32) as u32;
            let expected = [
                u32::from_le_bytes(picked),
                ((pair << shift) >> 32) as u32,
                (pair >> shift) as u32,
                extended,
                inserted,
                chosen,
                a.reverse_bits() ^ b.leading_zeros() ^ first_set,
                high(a, b).wrapping_add(high(a, c)).wrapping_add(signed),
            ];
            assert_eq!(y, expected, "{a:#x} {b:#x} {c:#x}");
        }
    }
}

#[test]
fn halves_round_once() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        // Halves of moderate size, so that nothing overflows.
        let half = |bits: u32| u32::from(f16::from_f32((bits % 4096) as f32 / 512.0 - 4.0).to_bits());
        let x: Vec<u32> = numbers(64).iter().map(|bits| half(*bits) | half(bits >> 12) << 16).collect();
        let (dx, dy) = (machine.put(&x), machine.put(&[0u32; 128]));
        machine.run(machine.kernel(ptx, "halves"), (1, 32, 0), &[dx, dy]).unwrap();
        for (x, y) in x.chunks(2).zip(machine.get::<u32>(dy, 128).chunks(4)) {
            let value = |pair: u32, at: u32| f16::from_bits((pair >> (16 * at)) as u16).to_f64();
            let brain = |pair: u32, at: u32| bf16::from_bits((pair >> (16 * at)) as u16).to_f64();
            let both = |of: &dyn Fn(u32) -> u16| u32::from(of(0)) | u32::from(of(1)) << 16;
            assert_eq!(y[0], both(&|at| f16::from_f64(value(x[0], at) + value(x[1], at)).to_bits()));
            assert_eq!(
                y[1],
                both(&|at| f16::from_f64(value(x[0], at).mul_add(value(x[1], at), value(x[0], at))).to_bits())
            );
            assert_eq!(y[2], u32::from(f16::from_f32(f32::from_bits(x[0])).to_bits()));
            if card.ends_with("8.0") {
                let sum = |at| bf16::from_f64(brain(x[0], at).mul_add(brain(x[1], at), brain(x[0], at))).to_bits();
                assert_eq!(y[3], both(&sum));
            }
        }
    }
}

#[test]
fn loads_and_stores_of_all_widths_agree() {
    for (card, ptx) in PTX {
        let machine = Machine::new(card);
        let words = numbers(16);
        let x: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| byte & 0xbf).collect();
        let (dx, dy, dz, dw) =
            (machine.put(&x), machine.put(&[0i64; 16]), machine.put(&[0f32; 64]), machine.put(&[0f64; 16]));
        machine.run(machine.kernel(ptx, "widths"), (1, 16, 0), &[dx, dy, dz, dw]).unwrap();
        let (y, z, w) = (machine.get::<i64>(dy, 16), machine.get::<u32>(dz, 64), machine.get::<f64>(dw, 16));
        for i in 0..16 {
            let short = u16::from_le_bytes([x[2 * i], x[2 * i + 1]]);
            let long = u64::from_le_bytes(x[8 * (i % 4)..][..8].try_into().unwrap());
            let sum = i64::from(x[i]) + i64::from(x[i] as i8) + i64::from(short) + i64::from(short as i16);
            let sum = sum.wrapping_add(long as i64);
            let expected = match i % 7 {
                0 => sum.wrapping_add(3),
                1 => sum.wrapping_mul(5),
                2 => sum ^ 77,
                3 => sum.wrapping_sub(i as i64),
                4 => sum / 3,
                5 => sum % 11,
                _ => sum.wrapping_neg(),
            };
            assert_eq!(y[i], expected, "{i}");
            for at in 0..4 {
                let from = 16 * (i % 2) + 4 * (3 - at);
                assert_eq!(z[4 * i + at].to_le_bytes(), x[from..from + 4], "{i} {at}");
            }
            assert_eq!(w[i], 1.0 / (1.0 + i as f64) + i as f64 * 0.5);
        }
    }
}

#[test]
fn asynchronous_copies_and_matrices_of_shared_memory_arrive() {
    let (card, ptx) = PTX[1];
    let machine = Machine::new(card);
    let x = numbers(256);
    let (dx, dy) = (machine.put(&x), machine.put(&[0u32; 128]));
    machine.run(machine.kernel(ptx, "pipelines"), (1, 32, 0), &[dx, dy]).unwrap();
    let y = machine.get::<u32>(dy, 128);
    // A row of a matrix is 16 bytes: four words; row and words by lane.
    for lane in 0..32 {
        assert_eq!(y[lane], x[lane / 4 * 4 + lane % 4]);
        assert_eq!(y[32 + lane], x[(24 + lane / 4) * 4 + lane % 4]);
        let half = |row: usize, column: usize| x[128 + row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
        let (row, column) = (lane % 4 * 2, lane / 4);
        assert_eq!(y[64 + lane], half(row, column) | half(row + 1, column) << 16);
        assert_eq!(y[96 + lane], (0..32).sum::<u32>());
    }
}
