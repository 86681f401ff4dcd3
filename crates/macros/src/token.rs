//! The tokens of an attribute or an item, as plain data.
//!
//! A list of these tokens has the same length as the compiler's list that it was copied from, so a
//! position in one list is valid in the other.
//!
//! A copy never becomes a token of the compiler again: `expand` takes the original tokens, by
//! position.

use proc_macro::{Delimiter, Spacing, Span, TokenTree};

/// One token, or a pair of delimiters with the tokens between them.
#[derive(Clone, Debug)]
pub(crate) struct Token<S> {
    pub(crate) kind: Kind<S>,
    pub(crate) span: S,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind<S> {
    /// A name or keyword.
    Word(String),
    /// One character of an operator; [`Spacing::Joint`] if the operator continues with the next
    /// token.
    Punct(char, Spacing),
    /// A number, string or character, as written.
    Literal(String),
    /// A pair of delimiters. [`Delimiter::None`] encloses a fragment (`$x:expr`) of a
    /// `macro_rules!` macro.
    Group(Delimiter, Vec<Token<S>>),
}

impl<S> Token<S> {
    /// Returns the token itself, or the only token inside invisible delimiters.
    pub(crate) fn ungrouped(&self) -> &Token<S> {
        match &self.kind {
            Kind::Group(Delimiter::None, inside) if inside.len() == 1 => inside[0].ungrouped(),
            _ => self,
        }
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(crate) fn literal(&self) -> Option<&str> {
        match &self.kind {
            Kind::Literal(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_punct(&self, expected: char) -> bool {
        matches!(self.kind, Kind::Punct(found, _) if found == expected)
    }

    /// Returns whether this is the character `expected`, and the operator continues after it.
    pub(crate) fn is_joint(&self, expected: char) -> bool {
        matches!(self.kind, Kind::Punct(found, Spacing::Joint) if found == expected)
    }

    /// Returns the tokens between the delimiters, if this is a pair of `expected` delimiters.
    pub(crate) fn group(&self, expected: Delimiter) -> Option<&[Token<S>]> {
        match &self.kind {
            Kind::Group(found, inside) if *found == expected => Some(inside),
            _ => None,
        }
    }

    /// Returns the token as shown in an error message.
    pub(crate) fn shown(&self) -> String {
        match &self.kind {
            Kind::Word(text) | Kind::Literal(text) => text.clone(),
            Kind::Punct(punct, _) => punct.to_string(),
            Kind::Group(Delimiter::Parenthesis, _) => "(..)".to_owned(),
            Kind::Group(Delimiter::Bracket, _) => "[..]".to_owned(),
            Kind::Group(Delimiter::Brace, _) => "{..}".to_owned(),
            Kind::Group(Delimiter::None, inside) => {
                inside.first().map_or_else(String::new, Token::shown)
            }
        }
    }
}

/// Copies the compiler's tokens.
pub(crate) fn copy<'a>(trees: impl IntoIterator<Item = &'a TokenTree>) -> Vec<Token<Span>> {
    trees.into_iter().map(copy_one).collect()
}

fn copy_one(tree: &TokenTree) -> Token<Span> {
    let kind = match tree {
        TokenTree::Ident(ident) => Kind::Word(ident.to_string()),
        TokenTree::Punct(punct) => Kind::Punct(punct.as_char(), punct.spacing()),
        TokenTree::Literal(literal) => Kind::Literal(literal.to_string()),
        TokenTree::Group(group) => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            Kind::Group(group.delimiter(), copy(&inside))
        }
    };
    Token { kind, span: tree.span() }
}

/// A lexer for unit tests, for the part of Rust that they use. The place of a token is the offset
/// of its first character.
#[cfg(test)]
pub(crate) mod lexer {
    use super::*;

    /// `⟦` and `⟧` stand for invisible delimiters.
    const OPEN: &str = "([{⟦";
    const CLOSE: &str = ")]}⟧";
    const DELIMITERS: [Delimiter; 4] =
        [Delimiter::Parenthesis, Delimiter::Bracket, Delimiter::Brace, Delimiter::None];

    pub(crate) fn lex(text: &str) -> Vec<Token<usize>> {
        let mut rest = text.char_indices().peekable();
        list(text, &mut rest)
    }

    type Rest<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

    fn list(text: &str, rest: &mut Rest<'_>) -> Vec<Token<usize>> {
        let mut found = Vec::new();
        while let Some((at, c)) = rest.next() {
            let kind = if c.is_whitespace() {
                continue;
            } else if CLOSE.contains(c) {
                break;
            } else if let Some(which) = OPEN.chars().position(|open| open == c) {
                Kind::Group(DELIMITERS[which], list(text, rest))
            } else if c == '"' {
                let length = text[at + 1..].find('"').unwrap() + 2;
                while rest.next_if(|(next, _)| *next < at + length).is_some() {}
                Kind::Literal(text[at..at + length].to_owned())
            } else if c.is_ascii_digit() {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
                Kind::Literal(take(text, at, rest, is_part))
            } else if c.is_alphabetic() || c == '_' {
                Kind::Word(take(text, at, rest, |c| c.is_alphanumeric() || c == '_' || c == '#'))
            } else {
                let joint = rest.peek().is_some_and(|(_, next)| "=<>:&|+-*/!.".contains(*next));
                Kind::Punct(c, if joint { Spacing::Joint } else { Spacing::Alone })
            };
            found.push(Token { kind, span: at });
        }
        found
    }

    fn take(text: &str, at: usize, rest: &mut Rest<'_>, part: impl Fn(char) -> bool) -> String {
        let mut end = at + text[at..].chars().next().unwrap().len_utf8();
        while let Some((next, c)) = rest.next_if(|(_, c)| part(*c)) {
            end = next + c.len_utf8();
        }
        text[at..end].to_owned()
    }

    #[test]
    fn the_test_lexer_produces_the_expected_tokens() {
        let tokens = lex(r#"procs = f::<A>(1, 2.5), "a b" ⟦-7⟧"#);
        let shown: Vec<String> = tokens.iter().map(Token::shown).collect();
        let expected = ["procs", "=", "f", ":", ":", "<", "A", ">", "(..)", ",", "\"a b\"", "-"];
        assert_eq!(shown, expected);
        assert!(tokens[3].is_joint(':') && !tokens[1].is_joint('='));
        assert_eq!(tokens[8].group(Delimiter::Parenthesis).unwrap().len(), 3);
        assert_eq!(tokens[9].span, 22);
    }
}
