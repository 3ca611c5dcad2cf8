//! Metadata: keys and typed values. Writers disagree on integer widths, so the getters take any integer that fits.

use std::collections::BTreeMap;

use super::GgufError;

macro_rules! scalars {
    ($($variant:ident $type:ty, $id:literal;)*) => {
        /// A metadata value.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "the names say it")]
        pub enum Value {
            $($variant($type),)*
            Bool(bool),
            String(String),
            Array(Array),
        }

        /// Type of a value or of an array's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names say it")]
        pub enum ValueType { $($variant,)* Bool, String, Array }

        impl ValueType {
            /// Id in the file.
            pub fn id(self) -> u32 {
                match self { $(Self::$variant => $id,)* Self::Bool => 7, Self::String => 8, Self::Array => 9 }
            }

            /// The type with this id, if known.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* 7 => Some(Self::Bool), 8 => Some(Self::String), 9 => Some(Self::Array), _ => None }
            }

            /// Bytes of a scalar; `None` for strings and arrays.
            pub fn n_bytes(self) -> Option<usize> {
                match self { $(Self::$variant => Some(size_of::<$type>()),)* Self::Bool => Some(1), Self::String | Self::Array => None }
            }
        }

        impl Value {
            /// Its type.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                    Self::Bool(_) => ValueType::Bool,
                    Self::String(_) => ValueType::String,
                    Self::Array(_) => ValueType::Array,
                }
            }

            /// A scalar from exactly its bytes.
            pub(super) fn from_scalar_bytes(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
                match value_type {
                    $(ValueType::$variant => Some(Self::$variant(<$type>::from_le_bytes(bytes.try_into().ok()?))),)*
                    ValueType::Bool => Some(Self::Bool(*bytes.first()? != 0)),
                    ValueType::String | ValueType::Array => None,
                }
            }

            /// Appends the bytes of a scalar.
            pub(super) fn push_scalar_bytes(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(value) => out.extend_from_slice(&value.to_le_bytes()),)*
                    Self::Bool(value) => out.push(u8::from(*value)),
                    Self::String(_) | Self::Array(_) => {}
                }
            }
        }

        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
scalars! {
    U8 u8, 0; I8 i8, 1; U16 u16, 2; I16 i16, 3; U32 u32, 4; I32 i32, 5; F32 f32, 6; U64 u64, 10; I64 i64, 11; F64 f64, 12;
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<Array> for Value {
    fn from(value: Array) -> Self {
        Self::Array(value)
    }
}

impl Value {
    /// As an integer, if it is one of any width.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// As a float, from a float or an integer.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => self.as_integer().map(|v| v as f32),
        }
    }

    /// As a boolean, from a boolean or the integers 0 and 1.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => self.as_integer().and_then(|v| u8::try_from(v).ok()).filter(|v| *v < 2).map(|v| v == 1),
        }
    }

    /// In a few words, for messages.
    fn in_words(&self) -> String {
        match self {
            Self::Array(array) => format!("{} elements of {:?}", array.len(), array.element_type()),
            Self::String(text) => format!("`{}`", text.chars().take(60).collect::<String>()),
            other => format!("{other:?}"),
        }
    }
}

/// An array value, kept as compact as in the file: scalars as their bytes, strings as one run of bytes with their ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    element_type: ValueType,
    bytes: Vec<u8>,
    /// For strings: where each ends in `bytes`.
    ends: Vec<u64>,
}

impl Array {
    /// An array of scalars from their little-endian bytes.
    pub(super) fn from_scalar_bytes(element_type: ValueType, bytes: &[u8]) -> Self {
        Self { element_type, bytes: bytes.to_vec(), ends: Vec::new() }
    }

    /// An array of strings; any bytes are allowed in them.
    pub fn from_strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut array = Self { element_type: ValueType::String, bytes: Vec::new(), ends: Vec::new() };
        strings.into_iter().for_each(|string| array.push_string(string.as_ref()));
        array
    }

    /// An array of scalars of one type.
    pub fn from_scalars<T: Into<Value> + Copy>(scalars: &[T]) -> Self {
        let element_type = scalars.first().map_or(ValueType::U8, |first| (*first).into().value_type());
        let mut bytes = Vec::new();
        scalars.iter().for_each(|scalar| (*scalar).into().push_scalar_bytes(&mut bytes));
        Self { element_type, bytes, ends: Vec::new() }
    }

    pub(super) fn push_string(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Type of its elements.
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.element_type.n_bytes().map_or(self.ends.len(), |n| self.bytes.len() / n)
    }

    /// Bytes of its elements, without the lengths of strings.
    pub fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as strings; `None` if they are scalars.
    pub fn strings(&self) -> Option<impl ExactSizeIterator<Item = &[u8]>> {
        (self.element_type == ValueType::String).then(|| (0..self.ends.len()).map(|i| self.string_at(i)))
    }

    /// One element as a string; `None` if there is no such element or it is a scalar.
    pub fn string(&self, index: usize) -> Option<&[u8]> {
        (index < self.ends.len()).then(|| self.string_at(index))
    }

    fn string_at(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// The elements as scalars; `None` if they are strings.
    pub fn scalars(&self) -> Option<impl ExactSizeIterator<Item = Value>> {
        let n_bytes = self.element_type.n_bytes()?;
        Some(self.bytes.chunks_exact(n_bytes).map(|bytes| {
            Value::from_scalar_bytes(self.element_type, bytes).expect("a chunk has exactly the bytes of its type")
        }))
    }

    /// Bytes of scalars as in the file.
    pub(super) fn scalar_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Keys and values of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

impl Metadata {
    pub(super) fn insert(&mut self, key: &str, value: Value) -> Result<(), GgufError> {
        match self.values.insert(key.to_owned(), value) {
            Some(_) => Err(GgufError::DuplicateKey { key: key.to_owned() }),
            None => Ok(()),
        }
    }

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The value as stored.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// An integer; an error if there is a value that is none or does not fit.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.get_as(key, "a 32-bit count", |value| value.as_integer()?.try_into().ok())
    }

    /// An integer; an error if there is a value that is none or does not fit.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.get_as(key, "a 64-bit count", |value| value.as_integer()?.try_into().ok())
    }

    /// A finite float; an error if there is a value that is none.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.get_as(key, "a finite number", |value| value.as_f32().filter(|v| v.is_finite()))
    }

    /// A boolean; an error if there is a value that is none.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.get_as(key, "true or false", Value::as_bool)
    }

    /// A string; an error if there is a value that is none.
    pub fn get_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.get_as(key, "a string", |value| if let Value::String(text) = value { Some(text.as_str()) } else { None })
    }

    /// An array of any type; an error if there is a value that is none.
    pub fn get_array(&self, key: &str) -> Result<Option<&Array>, GgufError> {
        self.get_as(key, "an array", |value| if let Value::Array(array) = value { Some(array) } else { None })
    }

    /// The strings of an array; an error if there is a value that is no array of strings.
    pub fn get_strings(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = &[u8]>>, GgufError> {
        self.get_as(
            key,
            "an array of strings",
            |value| if let Value::Array(array) = value { array.strings() } else { None },
        )
    }

    /// The integers of an array; an error if there is a value that is no array of integers that fit.
    pub fn get_u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.get_as(key, "an array of 32-bit counts", |value| match value {
            Value::Array(array) => array.scalars()?.map(|v| v.as_integer()?.try_into().ok()).collect(),
            _ => None,
        })
    }

    /// The floats of an array; an error if there is a value that is no array of numbers.
    pub fn get_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.get_as(key, "an array of numbers", |value| match value {
            Value::Array(array) => array.scalars()?.map(|v| v.as_f32()).collect(),
            _ => None,
        })
    }

    /// The booleans of an array, some of which may be written as 0 and 1; an error if there is a value that is none.
    pub fn get_bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        let as_bool = |value: Value| value.as_bool().or_else(|| value.as_integer().map(|value| value != 0));
        self.get_as(key, "an array of true or false", |value| match value {
            Value::Array(array) => array.scalars()?.map(as_bool).collect(),
            _ => None,
        })
    }

    fn get_as<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let wrong = || GgufError::WrongType { key: key.to_owned(), expected, got: value.in_words() };
        convert(value).map(Some).ok_or_else(wrong)
    }
}
