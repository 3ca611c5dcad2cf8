//! Instruction sets: which one runs, and the vector operations that every kernel is written over.
//!
//! The choice is made once, at run time. `Scalar` is normative: every kernel of every other ISA is tested against it.
mod scalar;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86_256;
#[cfg(target_arch = "x86_64")]
mod x86_512;
#[cfg(target_arch = "x86_64")]
mod x86_panel;

use std::fmt;
use std::str::FromStr;

pub(crate) use scalar::Scalar;
pub(crate) use vector::{LANES, Quants, Vector};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_256::{Avx2, AvxVnni};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_512::Avx512Vnni;

/// An instruction set that the kernels exist for, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, runs everywhere, the norm of the others.
    Scalar,
    /// AVX2 with FMA, F16C and BMI2 (Haswell, Zen).
    Avx2,
    /// AVX2 with 256-bit VNNI (Alder Lake).
    AvxVnni,
    /// AVX-512 F, VL, BW, DQ, VNNI and VBMI (Ice Lake, Zen 4).
    Avx512Vnni,
}

/// All of them, in rising order.
pub const ISAS: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512Vnni];

impl Isa {
    /// The highest this CPU has.
    pub fn best() -> Isa {
        ISAS.into_iter().rfind(|isa| isa.is_present()).unwrap_or(Isa::Scalar)
    }

    /// Those this CPU has, in rising order.
    pub fn present() -> Vec<Isa> {
        ISAS.into_iter().filter(|isa| isa.is_present()).collect()
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512Vnni => "avx512vnni",
        }
    }

    /// Whether this CPU and its operating system have it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_present(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi2");
        match self {
            Isa::Scalar => true,
            Isa::Avx2 => avx2,
            Isa::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
            Isa::Avx512Vnni => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("avx512vbmi")
            }
        }
    }

    /// Whether this CPU has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_present(self) -> bool {
        self == Isa::Scalar
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no instruction set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set `{name}`: expected scalar, avx2, avxvnni or avx512vnni")]
pub struct UnknownIsa {
    /// What was given.
    pub name: String,
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Isa, UnknownIsa> {
        ISAS.into_iter().find(|isa| isa.name() == name).ok_or_else(|| UnknownIsa { name: name.to_owned() })
    }
}

/// Defines a function whose body is compiled once per ISA; the first argument of the function says which copy runs.
///
/// The body may name the ISA's vector type by the identifier before the colon: `per_isa! { fn f<V>(x: &[f32]) { … } }`.
/// Calls inside the body must be `#[inline(always)]`, or they are compiled without the ISA. A body that needs `V: Quants`
/// is followed by what the scalar ISA does instead: `per_isa! { fn f<V: Quants>(x: &[f32]) { … } scalar { … } }`.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$v:ident $(, $g:ident: $bound:path)*>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $crate::cpu::isa::per_isa! {
            @define Vector { body::<$crate::cpu::isa::Scalar $(, $g)*>($($arg),*) }
            $(#[$meta])* $vis unsafe fn $name<$v $(, $g: $bound)*>($($arg: $ty),*) $(-> $ret)? $body
        }
    };
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$v:ident: Quants $(, $g:ident: $bound:path)*>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block scalar $scalar:block) => {
        $crate::cpu::isa::per_isa! {
            @define Quants $scalar
            $(#[$meta])* $vis unsafe fn $name<$v $(, $g: $bound)*>($($arg: $ty),*) $(-> $ret)? $body
        }
    };
    (@define $trait:ident $scalar:block $(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$v:ident $(, $g:ident: $bound:path)*>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// The CPU has `isa`; pointers hold what the body reads and writes.
        $vis unsafe fn $name<$($g: $bound),*>(isa: $crate::cpu::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            unsafe fn body<$v: $crate::cpu::isa::$trait $(, $g: $bound)*>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2")]
            fn avx2<$($g: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the features are enabled here; the rest is the outer function's contract.
                unsafe { body::<$crate::cpu::isa::Avx2 $(, $g)*>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2,avxvnni")]
            fn avxvnni<$($g: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { body::<$crate::cpu::isa::AvxVnni $(, $g)*>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(
                enable = "avx2,fma,f16c,bmi2,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx512vbmi"
            )]
            fn avx512vnni<$($g: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { body::<$crate::cpu::isa::Avx512Vnni $(, $g)*>($($arg),*) }
            }
            debug_assert!(isa.is_present());
            // SAFETY: the caller vouches for the ISA and for the arguments.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::isa::Isa::Avx2 => avx2::<$($g),*>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::isa::Isa::AvxVnni => avxvnni::<$($g),*>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::isa::Isa::Avx512Vnni => avx512vnni::<$($g),*>($($arg),*),
                    _ => $scalar,
                }
            }
        }
    };
}
pub(crate) use per_isa;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for isa in ISAS {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert!("sse9".parse::<Isa>().is_err());
    }

    #[test]
    fn scalar_is_always_present_and_best_is_the_last_present() {
        let present = Isa::present();
        assert_eq!(present.first(), Some(&Isa::Scalar));
        assert_eq!(present.last(), Some(&Isa::best()));
    }
}
