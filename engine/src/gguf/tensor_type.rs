//! The tensor types of GGUF: ids, names and block sizes. Which of them the engine can multiply is `quant`'s business.

/// A tensor type that a GGUF file may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(non_camel_case_types, reason = "the names are the field's own")]
#[expect(missing_docs, reason = "the names say it; sizes are in `TENSOR_TYPES`")]
pub enum TensorType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
}

/// One row of the table of types.
#[derive(Clone, Copy, Debug)]
pub struct TypeRow {
    /// The type.
    pub tensor_type: TensorType,
    /// Id in the file.
    pub id: u32,
    /// Name as users write it.
    pub name: &'static str,
    /// Elements per block.
    pub block_elems: u64,
    /// Bytes per block.
    pub block_bytes: u64,
}

macro_rules! table {
    ($($t:ident $id:literal $elems:literal $bytes:literal;)*) => {
        /// Every known type. Source: `ggml.h`, `ggml-common.h` of llama.cpp.
        pub static TENSOR_TYPES: &[TypeRow] = &[
            $(TypeRow { tensor_type: TensorType::$t, id: $id, name: stringify!($t), block_elems: $elems, block_bytes: $bytes },)*
        ];
    };
}
table! {
    F32 0 1 4; F16 1 1 2; Q4_0 2 32 18; Q4_1 3 32 20; Q5_0 6 32 22; Q5_1 7 32 24; Q8_0 8 32 34; Q8_1 9 32 36;
    Q2_K 10 256 84; Q3_K 11 256 110; Q4_K 12 256 144; Q5_K 13 256 176; Q6_K 14 256 210; Q8_K 15 256 292;
    IQ2_XXS 16 256 66; IQ2_XS 17 256 74; IQ3_XXS 18 256 98; IQ1_S 19 256 50; IQ4_NL 20 32 18; IQ3_S 21 256 110;
    IQ2_S 22 256 82; IQ4_XS 23 256 136; I8 24 1 1; I16 25 1 2; I32 26 1 4; I64 27 1 8; F64 28 1 8; IQ1_M 29 256 56;
    BF16 30 1 2; TQ1_0 34 256 54; TQ2_0 35 256 66; MXFP4 39 32 17; NVFP4 40 64 36; Q1_0 41 128 18; Q2_0 42 64 18;
}

impl TensorType {
    /// The type with this id, if known.
    pub fn from_id(id: u32) -> Option<Self> {
        TENSOR_TYPES.iter().find(|row| row.id == id).map(|row| row.tensor_type)
    }

    /// The type with this name, if known.
    pub fn from_name(name: &str) -> Option<Self> {
        TENSOR_TYPES.iter().find(|row| row.name == name).map(|row| row.tensor_type)
    }

    /// Its row of the table.
    pub fn row(self) -> &'static TypeRow {
        &TENSOR_TYPES[self as usize]
    }

    /// Bytes of a row of `n_elems`; `None` if that is no whole number of blocks or overflows.
    pub fn row_bytes(self, n_elems: u64) -> Option<u64> {
        let row = self.row();
        n_elems.is_multiple_of(row.block_elems).then(|| (n_elems / row.block_elems).checked_mul(row.block_bytes))?
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_enum() {
        for (i, row) in TENSOR_TYPES.iter().enumerate() {
            assert_eq!(row.tensor_type as usize, i);
            assert_eq!(TensorType::from_id(row.id), Some(row.tensor_type));
            assert_eq!(TensorType::from_name(row.name), Some(row.tensor_type));
        }
    }
}
