//! Tokens to modules: directives, variables, kernels, statements of their bodies.

use std::collections::HashMap;
use std::sync::Arc;

use super::decode::{Body, decode};
use super::inst::Op;
use super::lex::{Token, tokens};
use super::operands::{Scope, number};
use super::{Kernel, Module, Param, Variable};

/// Reads a PTX file. An error names the line.
pub(crate) fn parse(text: &str) -> Result<Module, String> {
    let all = tokens(text);
    let mut reader = Reader {
        tokens: &all,
        at: 0,
        module: Module { version: 0, target: 0, kernels: HashMap::new() },
        variables: Vec::new(),
        symbols: HashMap::new(),
        dynamic_shared: Vec::new(),
        shared: Vec::new(),
        text: Arc::new(text.lines().map(|line| line.trim().to_owned()).collect()),
    };
    reader.file().map_err(|message| {
        let line = all.get(reader.at.min(all.len().saturating_sub(1))).map_or(0, |token| token.line);
        format!("PTX line {line}: {message}")
    })?;
    reader.finish()
}

/// Declaration of a variable, without its contents.
struct Declared<'a> {
    name: &'a str,
    align: usize,
    element_bytes: usize,
    bytes: usize,
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    module: Module,
    variables: Vec<Variable>,
    symbols: HashMap<String, u64>,
    /// Names of shared memory whose size the launch says.
    dynamic_shared: Vec<String>,
    /// Shared variables outside of kernels: name, alignment, bytes.
    shared: Vec<(String, usize, usize)>,
    text: Arc<Vec<String>>,
}

impl<'a> Reader<'a> {
    fn finish(mut self) -> Result<Module, String> {
        // Kernels hold the variables that they may name.
        let variables = Arc::new(std::mem::take(&mut self.variables));
        for kernel in self.module.kernels.values_mut() {
            Arc::get_mut(kernel).ok_or("a kernel is in use already")?.variables = variables.clone();
        }
        Ok(self.module)
    }

    fn file(&mut self) -> Result<(), String> {
        while let Some(token) = self.peek() {
            match token.text {
                ".version" => {
                    let version = self.after()?.text;
                    let (major, minor) = version.split_once('.').ok_or("version")?;
                    self.module.version = 10 * integer(major)? + integer(minor)?;
                    self.at += 1;
                }
                ".target" => {
                    let target = self.after()?.text.trim_start_matches("sm_");
                    self.module.target = integer(target.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()))?;
                    self.at += 1;
                    while self.peek().is_some_and(|token| token.is(",")) {
                        self.at += 2;
                    }
                }
                ".address_size" => self.at += 2,
                ".visible" | ".extern" | ".weak" | ".common" => self.at += 1,
                ".entry" => self.entry()?,
                ".func" => self.skip_function()?,
                ".global" | ".const" => self.global()?,
                ".shared" => {
                    let (declared, _) = self.variable()?;
                    if declared.bytes == 0 {
                        self.dynamic_shared.push(declared.name.to_owned());
                    } else {
                        self.shared.push((declared.name.to_owned(), declared.align, declared.bytes));
                    }
                }
                ".file" | ".pragma" => self.skip_statement(),
                other => return Err(format!("`{other}` is not known here")),
            }
        }
        Ok(())
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    /// The token after this one, which is now the current one.
    fn after(&mut self) -> Result<Token<'a>, String> {
        self.at += 1;
        self.peek().ok_or_else(|| "the text ends too early".to_owned())
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        match self.peek() {
            Some(token) if token.is(text) => {
                self.at += 1;
                Ok(())
            }
            other => Err(format!("`{text}` is expected, not `{}`", other.map_or("the end", |token| token.text))),
        }
    }

    fn skip_statement(&mut self) {
        let line = self.peek().map_or(0, |token| token.line);
        while self.peek().is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    fn skip_function(&mut self) -> Result<(), String> {
        while !self.peek().ok_or("a function has no body")?.is("{") {
            if self.peek().is_some_and(|token| token.is(";")) {
                self.at += 1;
                return Ok(());
            }
            self.at += 1;
        }
        let mut depth = 0;
        while let Some(token) = self.peek() {
            depth += i32::from(token.is("{")) - i32::from(token.is("}"));
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
        Ok(())
    }

    /// A variable's declaration from its space on, up to `;`, and the tokens of its contents.
    fn variable(&mut self) -> Result<(Declared<'a>, &'a [Token<'a>]), String> {
        let mut declared = Declared { name: "", align: 0, element_bytes: 0, bytes: 0 };
        let mut token = self.after()?;
        while token.text.starts_with('.') {
            match token.text {
                ".align" => declared.align = integer(self.after()?.text)? as usize,
                kind => {
                    declared.element_bytes = bytes_of(kind).ok_or_else(|| format!("variables of type {kind}"))?;
                }
            }
            token = self.after()?;
        }
        declared.name = token.text;
        let mut n = 1;
        token = self.after()?;
        while token.is("[") {
            let length = self.after()?;
            if length.is("]") {
                n = 0;
            } else {
                n *= integer(length.text)? as usize;
                self.after()?;
            }
            token = self.after()?;
        }
        declared.bytes = n * declared.element_bytes;
        declared.align = declared.align.max(declared.element_bytes);
        let begin = self.at;
        while !self.peek().ok_or("a declaration has no end")?.is(";") {
            self.at += 1;
        }
        let contents = &self.tokens[begin..self.at];
        self.at += 1;
        Ok((declared, contents))
    }

    fn global(&mut self) -> Result<(), String> {
        let (declared, contents) = self.variable()?;
        let mut bytes = Vec::with_capacity(declared.bytes);
        let mut negative = false;
        for token in contents {
            match token.text {
                "=" | "{" | "}" | "," => {}
                "-" => negative = true,
                text => {
                    let value = number(text).ok_or_else(|| format!("`{text}` as contents of a variable"))?;
                    let value = if negative { value.wrapping_neg() } else { value };
                    bytes.extend_from_slice(&value.to_le_bytes()[..declared.element_bytes]);
                    negative = false;
                }
            }
        }
        bytes.resize(declared.bytes.max(1), 0);
        let variable = Variable::new(&bytes);
        self.symbols.insert(declared.name.to_owned(), variable.address());
        self.variables.push(variable);
        Ok(())
    }

    fn entry(&mut self) -> Result<(), String> {
        let name = self.after()?.text;
        self.at += 1;
        let mut params = Vec::new();
        let mut symbols = self.symbols.clone();
        let mut params_bytes = 0usize;
        self.expect("(")?;
        while !self.peek().ok_or("parameters have no end")?.is(")") {
            let declared = self.param()?;
            let offset = params_bytes.next_multiple_of(declared.align.max(1));
            symbols.insert(declared.name.to_owned(), offset as u64);
            params.push(Param { offset, bytes: declared.bytes, align: declared.align });
            params_bytes = offset + declared.bytes;
        }
        self.at += 1;
        let mut max_threads = 1024;
        while !self.peek().ok_or("a kernel has no body")?.is("{") {
            let directive = self.peek().map_or("", |token| token.text);
            self.at += 1;
            let mut product = 1;
            while let Some(value) = self.peek().and_then(|token| number(token.text)) {
                product *= value as u32;
                self.at += 1;
                self.at += usize::from(self.peek().is_some_and(|token| token.is(",")));
            }
            if matches!(directive, ".maxntid" | ".reqntid") {
                max_threads = product;
            }
        }
        self.at += 1;
        let kernel = self.body(name, params, params_bytes, max_threads, symbols)?;
        self.module.kernels.insert(name.to_owned(), Arc::new(kernel));
        Ok(())
    }

    /// One parameter with the comma behind it.
    fn param(&mut self) -> Result<Declared<'a>, String> {
        let mut declared = Declared { name: "", align: 0, element_bytes: 1, bytes: 0 };
        let mut n = 1;
        loop {
            let token = self.peek().ok_or("parameters have no end")?;
            match token.text {
                ")" => break,
                "," => {
                    self.at += 1;
                    break;
                }
                ".param" | ".ptr" | ".global" | ".const" | ".shared" | ".restrict" => {}
                ".align" => {
                    let align = integer(self.after()?.text)? as usize;
                    declared.align = declared.align.max(align);
                }
                "[" => {
                    n = integer(self.after()?.text)? as usize;
                    self.after()?;
                }
                text if text.starts_with('.') => {
                    declared.element_bytes = bytes_of(text).ok_or_else(|| format!("parameters of type {text}"))?;
                    declared.align = declared.element_bytes;
                }
                text => declared.name = text,
            }
            self.at += 1;
        }
        declared.bytes = n * declared.element_bytes;
        Ok(declared)
    }

    fn body(
        &mut self,
        name: &str,
        params: Vec<Param>,
        params_bytes: usize,
        max_threads: u32,
        mut symbols: HashMap<String, u64>,
    ) -> Result<Kernel, String> {
        let mut sizes = Sizes::default();
        for (name, align, bytes) in &self.shared {
            symbols.insert(name.clone(), sizes.shared(*align, *bytes));
        }
        let mut body = Body { scope: Scope::new(symbols), code: Vec::new(), lists: Vec::new() };
        let mut labels: HashMap<&str, u32> = HashMap::new();
        let mut jumps: Vec<(usize, &str)> = Vec::new();
        let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
        // Dynamic shared memory begins where the static one ends, which is known at the end of the kernel only; kernels
        // declare their own before they use the other.
        let mut depth = 1;
        while depth > 0 {
            let token = self.peek().ok_or("a kernel has no end")?;
            let next = self.tokens.get(self.at + 1);
            match token.text {
                "{" => {
                    depth += 1;
                    body.scope.open();
                    self.at += 1;
                }
                "}" => {
                    depth -= 1;
                    body.scope.close();
                    self.at += 1;
                }
                ";" => self.at += 1,
                ".reg" => self.registers(&mut body.scope)?,
                ".shared" => {
                    let (declared, _) = self.variable()?;
                    let at = sizes.shared(declared.align, declared.bytes);
                    body.scope.symbols.insert(declared.name.to_owned(), at);
                }
                ".local" => {
                    let (declared, _) = self.variable()?;
                    let at = sizes.local(declared.align, declared.bytes);
                    body.scope.symbols.insert(declared.name.to_owned(), at);
                }
                ".loc" | ".file" => self.skip_statement(),
                ".pragma" => {
                    self.until(";")?;
                }
                label if next.is_some_and(|token| token.is(":")) => {
                    self.at += 2;
                    if self.peek().is_some_and(|token| token.is(".branchtargets")) {
                        self.at += 1;
                        let targets = self.until(";")?.iter().filter(|token| !token.is(","));
                        tables.push((label, targets.map(|token| token.text).collect()));
                    } else {
                        labels.insert(label, body.code.len() as u32);
                    }
                }
                _ => {
                    for name in &self.dynamic_shared {
                        body.scope.symbols.entry(name.clone()).or_insert(DYNAMIC_SHARED);
                    }
                    let line = token.line;
                    let statement = self.until(";")?;
                    let target = decode(&mut body, statement, line).map_err(|message| {
                        self.at -= 1;
                        format!("{message} (in `{}` of `{name}`)", join(statement))
                    })?;
                    jumps.extend(target.map(|target| (body.code.len() - 1, target)));
                }
            }
        }
        let place = |label: &str| labels.get(label).copied().ok_or_else(|| format!("no label `{label}`"));
        let resolved = tables
            .iter()
            .map(|(_, labels)| labels.iter().map(|label| place(label)).collect())
            .collect::<Result<_, _>>();
        for (at, target) in jumps {
            body.code[at].imm = match body.code[at].op {
                Op::BranchTable => {
                    let table = tables.iter().position(|(name, _)| *name == target);
                    table.ok_or_else(|| format!("no table `{target}`"))? as i32
                }
                _ => place(target)? as i32,
            };
        }
        let static_bytes = sizes.shared.next_multiple_of(16);
        for (_, value) in &mut body.scope.registers.narrow {
            *value = if u64::from(*value) == DYNAMIC_SHARED { static_bytes as u32 } else { *value };
        }
        for (_, value) in &mut body.scope.registers.wide {
            *value = if *value == DYNAMIC_SHARED { static_bytes as u64 } else { *value };
        }
        Ok(Kernel {
            name: name.to_owned(),
            params,
            params_bytes,
            max_threads,
            shared_bytes: static_bytes,
            local_bytes: sizes.local.next_multiple_of(16),
            code: body.code,
            lists: body.lists,
            tables: resolved?,
            registers: body.scope.registers,
            variables: Arc::default(),
            text: self.text.clone(),
        })
    }

    /// Tokens up to a sign, which is passed.
    fn until(&mut self, end: &str) -> Result<&'a [Token<'a>], String> {
        let begin = self.at;
        while !self.peek().ok_or("a statement has no end")?.is(end) {
            self.at += 1;
        }
        self.at += 1;
        Ok(&self.tokens[begin..self.at - 1])
    }

    /// `.reg .b32 %r<5>, x;`
    fn registers(&mut self, scope: &mut Scope) -> Result<(), String> {
        self.at += 1;
        let statement = self.until(";")?;
        let (kind, names) = statement.split_first().ok_or("a type is expected")?;
        for declared in names.split(|token| token.is(",")) {
            match declared {
                [name] => scope.declare(kind.text, name.text.to_owned())?,
                [name, _, n, _] => {
                    for index in 0..integer(n.text)? {
                        scope.declare(kind.text, format!("{}{index}", name.text))?;
                    }
                }
                _ => return Err("a declaration of registers is not understood".to_owned()),
            }
        }
        Ok(())
    }
}

/// Stands for the address of dynamic shared memory until the size of the static one is known.
const DYNAMIC_SHARED: u64 = 0x5ead_ba5e;

/// Bytes given to variables of a kernel so far.
#[derive(Default)]
struct Sizes {
    shared: usize,
    local: usize,
}

impl Sizes {
    fn shared(&mut self, align: usize, bytes: usize) -> u64 {
        let at = self.shared.next_multiple_of(align.max(1));
        self.shared = at + bytes;
        at as u64
    }

    fn local(&mut self, align: usize, bytes: usize) -> u64 {
        let at = self.local.next_multiple_of(align.max(1));
        self.local = at + bytes;
        at as u64
    }
}

fn bytes_of(kind: &str) -> Option<usize> {
    match kind {
        ".b8" | ".u8" | ".s8" => Some(1),
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Some(2),
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Some(4),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
        _ => None,
    }
}

fn integer(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn join(tokens: &[Token<'_>]) -> String {
    tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
}
