//! The function below an attribute: finds its parts, and rejects functions that the runtime cannot
//! call. This module never looks inside the function's body.

use crate::error::Error;
use crate::list::Attribute;
use crate::token::{Kind, Token};
use proc_macro::Delimiter;
use std::ops::Range;

/// Positions of the parts of a function among the tokens of its item.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    /// Attributes and visibility: everything before `fn`.
    pub(crate) outside: Range<usize>,
    /// From `fn` to the end.
    pub(crate) whole: Range<usize>,
    pub(crate) name: usize,
    /// The parentheses and what is between them: one token.
    pub(crate) arguments: usize,
    /// The return type, unless there is none or it is `()`.
    pub(crate) output: Option<Range<usize>>,
    pub(crate) body: usize,
}

/// Keywords that Rust allows between the visibility and `fn`, each with the error message that
/// rejects it.
const QUALIFIERS: [(&str, &str); 6] = [
    ("async", "a goroutine blocks instead of awaiting: remove `async`"),
    ("const", "the runtime calls this function at run time: remove `const`"),
    (
        "unsafe",
        "the runtime cannot meet the safety conditions of an `unsafe` function: remove `unsafe`, and \
         use `unsafe` blocks in its body",
    ),
    ("extern", "the runtime calls only functions with Rust's ABI: remove `extern`"),
    ("gen", "the runtime calls plain functions: remove `gen`"),
    ("safe", "the runtime calls plain functions: remove `safe`"),
];

impl Function {
    /// Finds the parts of the function. Rejects a function that the runtime cannot call.
    pub(crate) fn read<S: Copy>(
        attribute: &Attribute,
        item: &[Token<S>],
        call_site: S,
    ) -> Result<Function, Error<S>> {
        let at = after_attributes(item)?;
        let start = after_visibility(item, at);
        let keyword = after_qualifiers(item, start);
        if !is_word(item.get(keyword), "fn") {
            let message = format!("`#[{}]` goes on a function", attribute.name);
            return Err(Error::new(item.get(start).map_or(call_site, |token| token.span), message));
        }
        refuse_qualifier(&item[start..keyword])?;
        // The compiler has checked the grammar of what follows `fn`, or reports the error itself.
        let (name, arguments) = (keyword + 1, keyword + 2);
        let incomplete = || {
            Error::new(
                item[keyword].span,
                "this function is incomplete: it needs a name, parentheses and a body",
            )
        };
        let inside = item.get(arguments).ok_or_else(incomplete)?;
        if inside.is_punct('<') {
            let message = "the runtime cannot choose generic parameters: remove them";
            return Err(Error::new(inside.span, message));
        }
        refuse_arguments(attribute, inside.group(Delimiter::Parenthesis).ok_or_else(incomplete)?)?;
        let body = item.len() - 1;
        if item[body].ungrouped().group(Delimiter::Brace).is_none() {
            let message = "the function has no body: add one, `{ .. }`";
            return Err(Error::new(item[body].span, message));
        }
        let output = output(item, arguments + 1..body)?;
        Ok(Function {
            outside: 0..keyword,
            whole: keyword..item.len(),
            name,
            arguments,
            output,
            body,
        })
    }
}

fn is_word<S>(token: Option<&Token<S>>, expected: &str) -> bool {
    token.and_then(Token::word) == Some(expected)
}

/// Skips the attributes. Rejects an attribute that would start the function a second time.
fn after_attributes<S: Copy>(item: &[Token<S>]) -> Result<usize, Error<S>> {
    let mut at = 0;
    while item.get(at).is_some_and(|token| token.is_punct('#')) {
        let inside = item.get(at + 1).and_then(|token| token.group(Delimiter::Bracket));
        let Some(inside) = inside else { break };
        if let "main" | "test" = last_name(inside) {
            let message =
                "a function can have only one `main` or `test` attribute: remove this one";
            return Err(Error::new(inside[0].span, message));
        }
        at += 2;
    }
    Ok(at)
}

/// Returns the last name in the path of an attribute: `d` of `#[a::b::c::d(…)]`.
fn last_name<S>(inside: &[Token<S>]) -> &str {
    if let [only] = inside
        && let Some(inside) = only.group(Delimiter::None)
    {
        return last_name(inside);
    }
    let is_path = |token: &&Token<S>| token.word().is_some() || token.is_punct(':');
    inside.iter().take_while(is_path).filter_map(Token::word).last().unwrap_or_default()
}

fn after_visibility<S>(item: &[Token<S>], at: usize) -> usize {
    match item.get(at).map(|token| &token.kind) {
        // The `$vis` fragment of a `macro_rules!` macro.
        Some(Kind::Group(Delimiter::None, inside))
            if inside.first().is_none_or(|first| first.word() == Some("pub")) =>
        {
            at + 1
        }
        Some(Kind::Word(word)) if word == "pub" => {
            let restricted = item.get(at + 1).and_then(|next| next.group(Delimiter::Parenthesis));
            at + 1 + usize::from(restricted.is_some())
        }
        _ => at,
    }
}

fn after_qualifiers<S>(item: &[Token<S>], mut at: usize) -> usize {
    while let Some(token) = item.get(at) {
        let abi = token.literal().is_some();
        if !abi && !QUALIFIERS.iter().any(|(word, _)| token.word() == Some(word)) {
            break;
        }
        at += 1;
    }
    at
}

/// Rejects qualifiers. Reports `async` first, because users of async runtimes are likely to write
/// it.
fn refuse_qualifier<S: Copy>(qualifiers: &[Token<S>]) -> Result<(), Error<S>> {
    for (word, message) in QUALIFIERS {
        if let Some(token) = qualifiers.iter().find(|token| token.word() == Some(word)) {
            return Err(Error::new(token.span, message));
        }
    }
    Ok(())
}

fn refuse_arguments<S: Copy>(attribute: &Attribute, inside: &[Token<S>]) -> Result<(), Error<S>> {
    let Some(first) = inside.first() else { return Ok(()) };
    let receiver = inside.iter().take_while(|token| !token.is_punct(',') && !token.is_punct(':'));
    let message = if receiver.into_iter().any(|token| token.word() == Some("self")) {
        format!("`#[{}]` goes on a free function: a method needs a `self`", attribute.name)
    } else {
        "the runtime calls this function without arguments: remove them".to_owned()
    };
    Err(Error::new(first.span, message))
}

/// Returns the position of the return type, which is between the arguments and the body. Returns
/// `None` if there is no return type or it is `()`.
fn output<S: Copy>(
    item: &[Token<S>],
    mut range: Range<usize>,
) -> Result<Option<Range<usize>>, Error<S>> {
    if let Some(clause) = item[range.clone()].iter().find(|token| token.word() == Some("where")) {
        let message = "the function has no generic parameters: remove the `where` clause";
        return Err(Error::new(clause.span, message));
    }
    range.start = (range.start + 2).min(range.end);
    let is_unit = match &item[range.clone()] {
        [] => true,
        [only] => only.ungrouped().group(Delimiter::Parenthesis).is_some_and(<[_]>::is_empty),
        _ => false,
    };
    Ok((!is_unit).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{MAIN, TEST};
    use crate::token::lexer::lex;

    fn read(text: &str) -> Function {
        Function::read(&MAIN, &lex(text), 0).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn refuse(text: &str) -> (&str, String) {
        let error = Function::read(&MAIN, &lex(text), 0).expect_err(text);
        (&text[error.span..], error.message)
    }

    #[test]
    fn the_parts_of_a_function_are_found() {
        let plain =
            Function { outside: 0..0, whole: 0..4, name: 1, arguments: 2, output: None, body: 3 };
        assert_eq!(read("fn main() {}"), plain);
        let full = Function {
            outside: 0..6,
            whole: 6..16,
            name: 7,
            arguments: 8,
            output: Some(11..15),
            body: 15,
        };
        assert_eq!(
            read("#[doc = \"x\"] #[allow(unused)] pub(crate) fn r#type() -> a::Result { 1 }"),
            full
        );
    }

    #[test]
    fn every_visibility_stays_outside() {
        for (visibility, tokens) in
            [("", 0), ("pub", 1), ("pub(in a::b)", 2), ("⟦⟧", 1), ("⟦pub⟧", 1), ("⟦pub(crate)⟧", 1)]
        {
            assert_eq!(read(&format!("{visibility} fn main() {{}}")).outside, 0..tokens);
        }
    }

    #[test]
    fn a_unit_result_is_no_result() {
        for output in ["", "-> ()", "-> ⟦()⟧"] {
            assert_eq!(read(&format!("fn main() {output} {{}}")).output, None, "{output}");
        }
        for output in
            ["!", "impl Termination", "Result<(), Box<dyn Error>>", "(())", "⟦A::<{ 1 }>⟧"]
        {
            let found = read(&format!("fn main() -> {output} {{}}")).output.unwrap();
            assert_eq!(found.len(), lex(output).len(), "{output}");
        }
    }

    #[test]
    fn a_body_may_come_from_a_macro() {
        assert_eq!(read("fn main() ⟦{ 1 }⟧").body, 3);
    }

    #[test]
    fn attributes_other_than_main_and_test_are_accepted() {
        for attribute in [
            "should_panic",
            "ignore = \"x\"",
            "cfg(test)",
            "test_case(1)",
            "a::main::b",
            "⟦allow(test)⟧",
            "doc = \"test\"",
        ] {
            assert_eq!(read(&format!("#[{attribute}] fn f() {{}}")).outside, 0..2);
        }
    }

    #[test]
    fn a_second_main_or_test_attribute_is_refused() {
        let message = "a function can have only one `main` or `test` attribute: remove this one";
        for attribute in [
            "test",
            "gosched::test",
            "::std::prelude::v1::test",
            "gosched::main(procs = 1)",
            "tokio::main",
        ] {
            let text = format!("#[inline] #[{attribute}] fn f() {{}}");
            assert_eq!(refuse(&text), (&text["#[inline] #[".len()..], message.to_owned()));
        }
        let text = "#[⟦test⟧] fn f() {}";
        assert_eq!(refuse(text), (&text[2..], message.to_owned()));
    }

    #[test]
    fn an_item_that_is_not_a_function_is_refused() {
        for item in [
            "struct Main;",
            "const X: u8 = 1;",
            "unsafe impl Send for X {}",
            "extern \"C\" { fn f(); }",
            "mod main { fn main() {} }",
            "let x = || 1;",
            "⟦1⟧",
        ] {
            let (place, message) = refuse(item);
            assert_eq!((place, &*message), (item, "`#[gosched::main]` goes on a function"));
        }
        let (place, _) = refuse("#[inline] pub static X: u8 = 1;");
        assert_eq!(place, "static X: u8 = 1;");
        assert!(Function::read(&TEST, &lex(""), 7).is_err_and(|error| error.span == 7));
    }

    #[test]
    fn qualifiers_are_refused_at_their_own_position() {
        for (item, place, start) in [
            (
                "async fn main() {}",
                "async fn main() {}",
                "a goroutine blocks instead of awaiting: remove `async`",
            ),
            (
                "pub unsafe async fn f() {}",
                "async fn f() {}",
                "a goroutine blocks instead of awaiting",
            ),
            ("pub unsafe fn f() {}", "unsafe fn f() {}", "the runtime cannot meet"),
            (
                "extern \"C\" fn f() {}",
                "extern \"C\" fn f() {}",
                "the runtime calls only functions with Rust's ABI",
            ),
            ("const fn f() {}", "const fn f() {}", "the runtime calls this function at run time"),
        ] {
            let (found, message) = refuse(item);
            assert_eq!(found, place);
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn generics_arguments_and_missing_bodies_are_refused() {
        for (item, place, start) in [
            ("fn f<T>() {}", "<T>() {}", "the runtime cannot choose generic parameters"),
            ("fn f(x: u8) {}", "x: u8) {}", "the runtime calls this function without arguments"),
            ("fn f(this: &self::A) {}", "this: &self::A) {}", "the runtime calls this function"),
            ("fn f(&mut self) {}", "&mut self) {}", "`#[gosched::main]` goes on a free function"),
            (
                "fn f(self: Box<Self>) {}",
                "self: Box<Self>) {}",
                "`#[gosched::main]` goes on a free",
            ),
            (
                "fn f() -> A where A: B {}",
                "where A: B {}",
                "the function has no generic parameters",
            ),
            ("fn f();", ";", "the function has no body"),
        ] {
            let (found, message) = refuse(item);
            assert_eq!(found, place);
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn an_incomplete_function_causes_no_panic() {
        for item in [
            "fn",
            "fn f",
            "fn f {}",
            "#",
            "# fn f() {}",
            "pub",
            "fn f()",
            "fn f() ->",
            "fn f() - {}",
        ] {
            let _ = Function::read(&MAIN, &lex(item), 0);
        }
    }
}
