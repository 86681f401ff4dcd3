//! A strict JSON parser (RFC 8259) for JSON that the library prints.

use std::collections::BTreeMap;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Parses a whole text.
    ///
    /// # Errors
    /// The text is not JSON. The error contains the reason and the rest of the text from that
    /// position on.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { rest: text };
        let value = reader.value(0);
        let value = value.and_then(|value| match reader.skip_whitespace() {
            "" => Ok(value),
            _ => Err("more than one value"),
        });
        let rest: String = reader.rest.chars().take(40).collect();
        value.map_err(|what| format!("{what}, {} before the end: {rest:?}", reader.rest.len()))
    }

    /// Returns the value of a field.
    ///
    /// # Panics
    /// This is not an object, or has no such field.
    pub fn get(&self, name: &str) -> &Json {
        let Json::Object(fields) = self else { panic!("no object: {self:?}") };
        fields.get(name).unwrap_or_else(|| panic!("no {name:?}: {self:?}"))
    }

    /// Returns the names of an object's fields, sorted.
    ///
    /// # Panics
    /// This is not an object.
    pub fn names(&self) -> Vec<&str> {
        let Json::Object(fields) = self else { panic!("no object: {self:?}") };
        fields.keys().map(String::as_str).collect()
    }

    /// Returns the values of an array.
    ///
    /// # Panics
    /// This is not an array.
    pub fn list(&self) -> &[Json] {
        let Json::List(values) = self else { panic!("no list: {self:?}") };
        values
    }

    /// Returns a string, or `None` for `null`.
    ///
    /// # Panics
    /// This is neither a string nor `null`.
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Null => None,
            Json::Text(text) => Some(text),
            other => panic!("no text: {other:?}"),
        }
    }

    /// Returns a non-negative whole number, or `None` for `null`.
    ///
    /// # Panics
    /// This is neither such a number nor `null`.
    pub fn number(&self) -> Option<u64> {
        match self {
            Json::Null => None,
            Json::Number(number) if *number >= 0.0 && number.fract() == 0.0 => Some(*number as u64),
            other => panic!("no whole number: {other:?}"),
        }
    }
}

/// Maximum nesting depth; more than the library ever prints.
const DEPTH: usize = 64;

struct Reader<'a> {
    rest: &'a str,
}

type Read<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn skip_whitespace(&mut self) -> &str {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest
    }

    fn consume(&mut self, text: &str) -> bool {
        self.skip_whitespace();
        self.consume_here(text)
    }

    fn consume_here(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Read<Json> {
        if depth > DEPTH {
            return Err("too deep");
        }
        for (word, value) in
            [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if self.consume(word) {
                return Ok(value);
            }
        }
        match self.rest.chars().next() {
            Some('"') => self.string().map(Json::Text),
            Some('[') => self.list(depth),
            Some('{') => self.object(depth),
            Some('-' | '0'..='9') => self.number(),
            _ => Err("no value"),
        }
    }

    fn list(&mut self, depth: usize) -> Read<Json> {
        let mut values = Vec::new();
        self.consume("[");
        while !self.consume("]") {
            if !values.is_empty() && !self.consume(",") {
                return Err("no comma");
            }
            values.push(self.value(depth + 1)?);
        }
        Ok(Json::List(values))
    }

    fn object(&mut self, depth: usize) -> Read<Json> {
        let mut fields = BTreeMap::new();
        self.consume("{");
        while !self.consume("}") {
            if !fields.is_empty() && !self.consume(",") {
                return Err("no comma");
            }
            self.skip_whitespace();
            let name = self.string()?;
            if !self.consume(":") {
                return Err("no colon");
            }
            let value = self.value(depth + 1)?;
            if fields.insert(name, value).is_some() {
                return Err("a name twice");
            }
        }
        Ok(Json::Object(fields))
    }

    fn string(&mut self) -> Read<String> {
        if !self.consume_here("\"") {
            return Err("no text");
        }
        let mut text = String::new();
        while !self.consume_here("\"") {
            let c = self.rest.chars().next().ok_or("no end of a text")?;
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '\\' => text.push(self.escaped()?),
                '\0'..='\x1f' => return Err("a control character"),
                _ => text.push(c),
            }
        }
        Ok(text)
    }

    fn escaped(&mut self) -> Read<char> {
        let c = self.rest.chars().next().ok_or("no end of a text")?;
        self.rest = &self.rest[c.len_utf8()..];
        Ok(match c {
            '"' | '\\' | '/' => c,
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(),
            _ => return Err("an unknown escape"),
        })
    }

    fn unicode(&mut self) -> Read<char> {
        let first = self.hex4()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).ok_or("half a character");
        }
        let second = if self.consume_here("\\u") { self.hex4()? } else { 0 };
        if (0xDC00..0xE000).contains(&second) {
            char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
                .ok_or("no character")
        } else {
            Err("half a character")
        }
    }

    fn hex4(&mut self) -> Read<u32> {
        let digits = self.rest.get(..4).ok_or("four digits")?;
        if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err("four digits");
        }
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).map_err(|_| "four digits")
    }

    fn digits(&mut self) -> usize {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let length = self.rest.len() - rest.len();
        self.rest = rest;
        length
    }

    fn number(&mut self) -> Read<Json> {
        let start = self.rest;
        self.consume_here("-");
        let leading_zero = self.rest.starts_with('0');
        match self.digits() {
            0 => return Err("no digits"),
            2.. if leading_zero => return Err("a leading zero"),
            _ => (),
        }
        if self.consume_here(".") && self.digits() == 0 {
            return Err("no digits");
        }
        if self.consume_here("e") || self.consume_here("E") {
            let _sign = self.consume_here("+") || self.consume_here("-");
            if self.digits() == 0 {
                return Err("no digits");
            }
        }
        let text = &start[..start.len() - self.rest.len()];
        text.parse().map(Json::Number).map_err(|_| "no number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_json_is_parsed() {
        let value = Json::parse(
            " {\"a\": [1, -2.5e3, null, true], \"b\":{}, \"c\":\"\\u00e9\\ud83d\\ude00\\n\\\"\"}\n",
        )
        .unwrap();
        assert_eq!(value.names(), ["a", "b", "c"]);
        assert_eq!(value.get("a").list()[1], Json::Number(-2500.0));
        assert_eq!(value.get("a").list()[0].number(), Some(1));
        assert_eq!(value.get("a").list()[2].text(), None);
        assert_eq!(value.get("c").text(), Some("é😀\n\""));
        assert_eq!(Json::parse("[]").unwrap().list(), []);
    }

    #[test]
    fn invalid_json_is_rejected() {
        for text in [
            "",
            "{",
            "[",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1,\"a\":2}",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"a\nb\"",
            "01",
            "1.",
            "-",
            "1e",
            "+1",
            ".5",
            "nul",
            "True",
            "NaN",
            "[1]]",
            "1 2",
            "{\"a\":'b'}",
            "\"\\udc00\"",
            "// a\n1",
        ] {
            Json::parse(text).expect_err(text);
        }
        Json::parse(&"[".repeat(1000)).expect_err("too deep");
    }
}
