//! The template language as chat templates expect it: Jinja with Python's strings and JSON, as Hugging Face's library sets
//! it up. Nothing can be read, written or run from a template, and its work is bounded.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, syntax::SyntaxConfig};

/// Work that one rendering may do: bounds its time, and its memory to 64 bytes for each unit.
const FUEL: u64 = 4_000_000;
/// Longest template that is read; the longest known is a tenth of it.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// An environment without templates.
pub(super) fn new() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the default delimiters differ from each other"));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::None => out.write_str("None").map_err(Error::from),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }).map_err(Error::from),
        _ => minijinja::escape_formatter(out, state, value),
    });
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        let now = jiff::ZonedDateTime::now();
        jiff::fmt::strtime::format(&format, &now)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment.add_filter("tojson", to_json);
    environment
}

/// Parses a template under a name.
pub(super) fn add(environment: &mut Environment<'static>, name: &'static str, source: &str) -> Result<(), Error> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Error::new(ErrorKind::SyntaxError, "longer than any template"));
    }
    environment.add_template_owned(name, without_generation_tags(source))
}

/// `{% generation %}` marks what training learns from; here it is a block that is always there.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|end| start + end) else { break };
        let tag = &rest[start + 2..end];
        let name = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start + 2]);
        match name {
            "generation" => out.push_str(&tag.replace(name, "if true")),
            "endgeneration" => out.push_str(&tag.replace(name, "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[end..];
    }
    out + rest
}

/// JSON as Python's `json.dumps` writes it.
fn to_json(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let escapes =
        if kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) { Escapes::NonAscii } else { Escapes::Needed };
    let sorts_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        _ => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    let mut json = Json { out: String::new(), indent, item, key, escapes, sorts_keys };
    json.write(value, 0)?;
    Ok(json.out)
}

/// Which characters are written as escapes besides quotes, backslashes and control characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Needed,
    NonAscii,
}

struct Json {
    out: String,
    indent: Option<usize>,
    item: String,
    key: String,
    escapes: Escapes,
    sorts_keys: bool,
}

impl Json {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        const MAX_DEPTH: usize = 100;
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::BadSerialization, "nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.block('[', ']', &items, depth, |json, item| json.write(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorts_keys {
                    keys.sort();
                }
                self.block('{', '}', &keys, depth, |json, key| {
                    json.string(&key.to_string());
                    let separator = json.key.clone();
                    json.out.push_str(&separator);
                    json.write(&value.get_item(key)?, depth + 1)
                })?;
            }
            kind => return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} has no JSON"))),
        }
        Ok(())
    }

    fn block(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                let separator = self.item.clone();
                self.out.push_str(&separator);
            }
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent.min(16) * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if u32::from(c) < 0x20 || (self.escapes == Escapes::NonAscii && !c.is_ascii()) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.out.push_str(&format!("\\u{unit:04x}")));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn render(source: &str) -> Result<String, Error> {
        let mut environment = new();
        add(&mut environment, "t", source)?;
        environment.get_template("t")?.render(context! { empty => Vec::<i32>::new() })
    }

    #[test]
    fn python_shows_through() {
        for (source, expected) in [
            (r#"{{ {"b": "é\"\n", "a": [1, 2]} | tojson }}"#, r#"{"b": "é\"\n", "a": [1, 2]}"#),
            (
                r#"{{ {"b": "é\"\n", "a": [1, 2]} | tojson(sort_keys=true, ensure_ascii=true) }}"#,
                r#"{"a": [1, 2], "b": "\u00e9\"\n"}"#,
            ),
            ("{{ [1, {'x': none}] | tojson(indent=2) }}", "[\n  1,\n  {\n    \"x\": null\n  }\n]"),
            ("{{ [1, 2] | tojson(separators=(',', ':')) }} {{ empty | tojson(indent=4) }}", "[1,2] []"),
            ("{{ none }} {{ true }} {{ undefined_name }}|{{ 1 }}", "None True |1"),
            ("{{ ' a b '.strip().split(' ')[-1] }}{{ 'x'.upper() }}", "bX"),
            ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
            ("{% set ns = namespace(n=0) %}{% for i in 'abc' %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
            ("a\n  {% generation %}\nb\n  {%- endgeneration -%}\n c", "a\nbc"),
            ("{{ [1, 2, 3][::-1] | join(',') }} {{ 'abc'[1:] }} {{ [1, 2][-1] }}", "3,2,1 bc 2"),
            ("{{ strftime_now('%Y') | length }}", "4"),
        ] {
            assert_eq!(render(source).map_err(|error| format!("{error:#}")).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn hostile_templates_end() {
        for source in [
            "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
            "{% set ns = namespace(s='x') %}{% for a in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "{{ 'x' * 99999999999 }}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{% include 'secrets' %}",
            "{{ raise_exception('no') }}",
            "{{ strftime_now('%') }}",
            "{{ messages[0].content.x.y }}",
            "{% if %}",
            "{{",
        ] {
            assert!(render(source).is_err(), "{source}");
        }
        assert!(render(&" ".repeat(MAX_SOURCE_BYTES + 1)).is_err());
    }
}
