//! The list `name = value, name = value` in the parentheses of an attribute.
//!
//! A value is any expression: it ends at a comma, but not at a comma between the angle brackets of
//! a path (`f::<A, B>()`). Tokens that no expression can contain are rejected here, because the
//! compiler's own error would refer to generated code.
//!
//! This module never interprets a value: `options` does.

use crate::error::Error;
use crate::token::{Kind, Token};
use std::ops::Range;

/// An attribute and its options: name and example of each. An option whose example has no `=` takes
/// no value.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) options: &'static [(&'static str, &'static str)],
}

/// One option, as the user wrote it.
#[derive(Debug)]
pub(crate) struct Given<S> {
    pub(crate) name: &'static str,
    pub(crate) span: S,
    /// Position of the value's tokens: at least one, or none if the option takes no value.
    pub(crate) value: Range<usize>,
}

/// Keywords that are not operands: they stand between two operands, or before one.
const JOINING: [&str; 10] =
    ["as", "const", "else", "if", "in", "let", "match", "move", "mut", "unsafe"];

impl Attribute {
    /// Reads the whole list. Each name must be known and be given once, and each option that takes
    /// a value must have one.
    pub(crate) fn read<S: Copy>(&self, tokens: &[Token<S>]) -> Result<Vec<Given<S>>, Error<S>> {
        let mut found: Vec<Given<S>> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let given = self.read_one(tokens, at)?;
            if found.iter().any(|earlier| earlier.name == given.name) {
                let message = format!("`{}` is given twice: remove one", given.name);
                return Err(Error::new(given.span, message));
            }
            at = given.value.end + 1;
            found.push(given);
        }
        Ok(found)
    }

    fn read_one<S: Copy>(&self, tokens: &[Token<S>], at: usize) -> Result<Given<S>, Error<S>> {
        let key = &tokens[at];
        let Some(word) = key.ungrouped().word() else {
            let message = format!("expected an option, found `{}`; {}", key.shown(), self);
            return Err(Error::new(key.span, message));
        };
        let Some((name, example)) = self.options.iter().find(|(name, _)| *name == word) else {
            return Err(Error::new(key.span, format!("unknown option `{word}`; {self}")));
        };
        if !example.contains('=') {
            return match tokens.get(at + 1) {
                Some(token) if !token.is_punct(',') => Err(Error::new(
                    token.span,
                    format!(
                        "`{name}` takes no value: put a comma after it, or remove what follows"
                    ),
                )),
                _ => Ok(Given { name, span: key.span, value: at + 1..at + 1 }),
            };
        }
        let missing = |span| Err(Error::new(span, format!("`{name}` needs a value: `{example}`")));
        match tokens.get(at + 1) {
            Some(token) if token.is_punct('=') && !token.is_joint('=') => {}
            Some(token) if !token.is_punct(',') => return missing(token.span),
            _ => return missing(key.span),
        }
        let value = at + 2..end_of_value(tokens, at + 2);
        if value.is_empty() {
            return missing(key.span);
        }
        refuse_two_operands_in_a_row(name, &tokens[value.clone()])?;
        Ok(Given { name, span: key.span, value })
    }
}

/// Lists the known options, as the second half of an error message.
impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`#[{}]` accepts ", self.name)?;
        for (at, (_, example)) in self.options.iter().enumerate() {
            write!(f, "{}`{example}`", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Returns the position of the comma that ends the value, or of the end of the list.
fn end_of_value<S>(tokens: &[Token<S>], start: usize) -> usize {
    let mut angles = 0;
    for at in start..tokens.len() {
        let before = |character| at > start && tokens[at - 1].is_joint(character);
        let token = &tokens[at];
        if token.is_punct('<') && (angles > 0 || at == start || before(':')) {
            angles += 1;
        } else if token.is_punct('>') && angles > 0 && !before('-') && !before('=') {
            angles -= 1;
        } else if token.is_punct(',') && angles == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Rejects two operands in a row, as in `4 5` or `4 stack = 5`: a comma is missing, or a token is
/// superfluous.
fn refuse_two_operands_in_a_row<S: Copy>(name: &str, value: &[Token<S>]) -> Result<(), Error<S>> {
    let is_operand = |token: &Token<S>| match &token.ungrouped().kind {
        Kind::Word(word) => !JOINING.contains(&word.as_str()),
        Kind::Literal(_) => true,
        Kind::Punct(..) | Kind::Group(..) => false,
    };
    match value.windows(2).find(|pair| is_operand(&pair[0]) && is_operand(&pair[1])) {
        None => Ok(()),
        Some(pair) => {
            let extra = pair[1].shown();
            let message = format!(
                "unexpected `{extra}` after the value of `{name}`: put a comma before another \
                 option, or remove it"
            );
            Err(Error::new(pair[1].span, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::lexer::lex;

    const COFFEE: Attribute =
        Attribute { name: "coffee", options: &[("milk", "milk = 1"), ("sugar", "sugar = 2")] };

    #[test]
    fn an_option_that_takes_no_value_must_stand_alone() {
        const TEA: Attribute =
            Attribute { name: "tea", options: &[("iced", "iced"), ("sugar", "sugar = 2")] };
        for text in ["iced", "iced,", "iced, sugar = 1", "sugar = 1, iced"] {
            let given = TEA.read(&lex(text)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert!(given.iter().any(|given| given.name == "iced" && given.value.is_empty()));
            assert_eq!(given.len(), 1 + usize::from(text.contains("sugar")));
        }
        for text in ["iced = 1", "iced sugar = 1", "iced(1)"] {
            let error = TEA.read(&lex(text)).unwrap_err();
            assert_eq!(
                error.message,
                "`iced` takes no value: put a comma after it, or remove what follows"
            );
            assert_eq!(error.span, if text.contains("(") { 4 } else { 5 });
        }
    }

    fn read(text: &str) -> Vec<(&'static str, String)> {
        let tokens = lex(text);
        let given = COFFEE.read(&tokens).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let value = |given: &Given<usize>| {
            tokens[given.value.clone()].iter().map(Token::shown).collect::<String>()
        };
        given.iter().map(|given| (given.name, value(given))).collect()
    }

    /// Returns the text from the place of the error on, and the error message.
    fn refuse(text: &str) -> (&str, String) {
        let error = COFFEE.read(&lex(text)).expect_err(text);
        (&text[error.span..], error.message)
    }

    #[test]
    fn options_are_pairs_between_commas() {
        assert_eq!(read(""), []);
        assert_eq!(read("milk = 3"), [("milk", "3".to_owned())]);
        assert_eq!(read("milk=3,"), [("milk", "3".to_owned())]);
        let both = [("sugar", "a::B".to_owned()), ("milk", "off".to_owned())];
        assert_eq!(read("sugar = a::B, milk = off"), both);
    }

    #[test]
    fn a_value_is_any_expression() {
        for value in [
            "1<<20",
            "2*N-1",
            "f(..)",
            "-1",
            "A::<B,C>::N",
            "<A<B,C>asD<E,F>>::N",
            "f::<fn(..)->B,C>(..)",
            "A<B",
        ] {
            let spaced = value.replace("as", " as ").replace("(..)", "(1, 2)");
            assert_eq!(
                read(&format!("milk = {spaced}, sugar = 1")),
                [("milk", value.to_owned()), ("sugar", "1".to_owned())]
            );
        }
        assert_eq!(read("milk = N as usize")[0].1, "Nasusize");
        assert_eq!(read("milk = if A { 1 } else { 2 }")[0].1, "ifA{..}else{..}");
        assert_eq!(read("milk = ⟦1 + 2⟧")[0].1, "1");
    }

    #[test]
    fn an_unknown_option_is_refused_with_a_list_of_known_options() {
        let known = "`#[coffee]` accepts `milk = 1`, `sugar = 2`";
        assert_eq!(
            refuse("milk = 1, tea = 2"),
            ("tea = 2", format!("unknown option `tea`; {known}"))
        );
        assert_eq!(refuse("Milk"), ("Milk", format!("unknown option `Milk`; {known}")));
        for (text, place, shown) in [
            ("4", "4", "4"),
            (", milk = 1", ", milk = 1", ","),
            ("milk = 1,, sugar = 2", ", sugar = 2", ","),
            ("(milk = 1)", "(milk = 1)", "(..)"),
        ] {
            let message = format!("expected an option, found `{shown}`; {known}");
            assert_eq!(refuse(text), (place, message));
        }
    }

    #[test]
    fn an_option_that_is_given_twice_is_refused() {
        let message = "`milk` is given twice: remove one".to_owned();
        assert_eq!(refuse("milk = 1, sugar = 1, milk = 2"), ("milk = 2", message));
    }

    #[test]
    fn a_missing_value_is_refused_with_an_example() {
        for (text, place) in [
            ("milk", "milk"),
            ("milk =", "milk ="),
            ("milk, sugar = 1", "milk, sugar = 1"),
            ("milk = , sugar = 1", "milk = , sugar = 1"),
            ("milk(1)", "(1)"),
            ("milk: 1", ": 1"),
            ("milk == 1", "== 1"),
            ("milk 1", "1"),
        ] {
            assert_eq!(refuse(text), (place, "`milk` needs a value: `milk = 1`".to_owned()));
        }
    }

    #[test]
    fn a_second_operand_after_a_value_is_refused() {
        for (text, place, shown) in [
            ("milk = 1 2", "2", "2"),
            ("milk = 1 sugar = 2", "sugar = 2", "sugar"),
            ("milk = N sugar = 2", "sugar = 2", "sugar"),
            ("milk = off \"x\"", "\"x\"", "\"x\""),
        ] {
            let message = format!(
                "unexpected `{shown}` after the value of `milk`: put a comma before another \
                 option, or remove it"
            );
            assert_eq!(refuse(text), (place, message));
        }
    }
}
