//! The meaning of the options: which values they accept, and their defaults. An expression is never
//! evaluated here: only literals and words are read, and the compiler checks the rest.

use crate::error::Error;
use crate::list::{Attribute, Given};
use crate::number::Number;
use crate::token::Token;
use std::ops::Range;

/// The options of `#[gosched::main]`.
pub(crate) const MAIN: Attribute = Attribute {
    name: "gosched::main",
    options: &[("procs", "procs = 4"), ("stack", "stack = 8 << 20"), ("alloc", "alloc = off")],
};

/// The options of `#[gosched::test]`.
pub(crate) const TEST: Attribute = Attribute {
    name: "gosched::test",
    options: &[
        ("procs", "procs = 4"),
        ("timeout", "timeout = 60"),
        ("leaks", "leaks = allow"),
        ("virtual_time", "virtual_time"),
        ("seed", "seed = 7"),
    ],
};

/// The default time limit of a test, in milliseconds. The attribute's documentation states it too.
const TIMEOUT_MILLIS: u64 = 60_000;

/// The options given to `#[gosched::main(…)]`. A range is the position of a constant expression.
#[derive(Debug)]
pub(crate) struct MainOptions {
    pub(crate) procs: Option<Range<usize>>,
    pub(crate) stack: Option<Range<usize>>,
    pub(crate) alloc: Alloc,
}

/// The global allocator that `#[gosched::main]` installs.
#[derive(Debug)]
pub(crate) enum Alloc {
    /// The option is not given: the allocation cache in front of the system's allocator.
    Default,
    /// No global allocator: the program uses its own, or the system's.
    Off,
    /// The allocation cache in front of the allocator at this position.
    InFrontOf(Range<usize>),
}

/// The options given to `#[gosched::test(…)]`. A range is the position of a constant expression.
#[derive(Debug)]
pub(crate) struct TestOptions {
    pub(crate) procs: Option<Range<usize>>,
    pub(crate) timeout_millis: u64,
    pub(crate) deny_leaks: bool,
    pub(crate) virtual_time: bool,
    pub(crate) seed: Option<Range<usize>>,
}

impl MainOptions {
    pub(crate) fn read<S: Copy>(tokens: &[Token<S>]) -> Result<MainOptions, Error<S>> {
        let mut options = MainOptions { procs: None, stack: None, alloc: Alloc::Default };
        for given in MAIN.read(tokens)? {
            match given.name {
                "procs" => options.procs = Some(parse_count(&given, tokens)?),
                "stack" => options.stack = Some(parse_count(&given, tokens)?),
                "alloc" => options.alloc = parse_allocator(&given, tokens)?,
                name => unreachable!("the option `{name}` is listed, but not parsed"),
            }
        }
        Ok(options)
    }
}

impl TestOptions {
    pub(crate) fn read<S: Copy>(tokens: &[Token<S>]) -> Result<TestOptions, Error<S>> {
        let mut options = TestOptions {
            procs: None,
            timeout_millis: TIMEOUT_MILLIS,
            deny_leaks: true,
            virtual_time: false,
            seed: None,
        };
        let list = TEST.read(tokens)?;
        let place = |name| list.iter().find(|given| given.name == name).map(|given| given.span);
        match (place("virtual_time"), place("procs"), place("seed")) {
            (Some(_), Some(procs), _) => {
                return Err(Error::new(
                    procs,
                    "virtual time runs one goroutine at a time: remove `procs`",
                ));
            }
            (None, _, Some(seed)) => {
                return Err(Error::new(seed, "`seed` needs `virtual_time`: add `virtual_time`"));
            }
            _ => {}
        }
        for given in list {
            match given.name {
                "virtual_time" => options.virtual_time = true,
                "seed" => options.seed = Some(given.value.clone()),
                "procs" => options.procs = Some(parse_count(&given, tokens)?),
                "timeout" => options.timeout_millis = parse_timeout_millis(&given, tokens)?,
                "leaks" => options.deny_leaks = parse_leaks(&given, tokens)?,
                name => unreachable!("the option `{name}` is listed, but not parsed"),
            }
        }
        Ok(options)
    }
}

/// Returns the only token of a value. Returns `None` if the value has several tokens.
fn single<'a, S>(given: &Given<S>, tokens: &'a [Token<S>]) -> Option<&'a Token<S>> {
    match &tokens[given.value.clone()] {
        [token] => Some(token.ungrouped()),
        _ => None,
    }
}

/// Rejects a value that is not an integer of at least 1, as far as its tokens show. The compiler
/// checks that the value is a constant `usize`.
fn parse_count<S: Copy>(given: &Given<S>, tokens: &[Token<S>]) -> Result<Range<usize>, Error<S>> {
    let first = &tokens[given.value.start];
    let literal = single(given, tokens).and_then(Token::literal);
    let refused = match literal {
        Some(text) => !matches!(Number::read(text), Some(Number::Integer(1..))),
        None => first.is_punct('-'),
    };
    if refused {
        let message = format!("`{}` takes an integer, 1 or more", given.name);
        return Err(Error::new(first.span, message));
    }
    Ok(given.value.clone())
}

fn parse_timeout_millis<S: Copy>(given: &Given<S>, tokens: &[Token<S>]) -> Result<u64, Error<S>> {
    let number = single(given, tokens).and_then(Token::literal).and_then(Number::read);
    number.and_then(Number::seconds_to_millis).ok_or_else(|| {
        let span = tokens[given.value.start].span;
        Error::new(
            span,
            "`timeout` takes seconds, a literal above 0: `timeout = 60` or `timeout = 0.5`",
        )
    })
}

fn parse_leaks<S: Copy>(given: &Given<S>, tokens: &[Token<S>]) -> Result<bool, Error<S>> {
    match single(given, tokens).and_then(Token::word) {
        Some("allow") => Ok(false),
        Some("deny") => Ok(true),
        _ => {
            let span = tokens[given.value.start].span;
            Err(Error::new(span, "`leaks` takes `allow` or `deny`"))
        }
    }
}

fn parse_allocator<S: Copy>(given: &Given<S>, tokens: &[Token<S>]) -> Result<Alloc, Error<S>> {
    let first = tokens[given.value.start].ungrouped();
    if single(given, tokens).and_then(Token::word) == Some("off") {
        return Ok(Alloc::Off);
    }
    if first.word().is_none() && !first.is_punct(':') && !first.is_punct('<') {
        return Err(Error::new(first.span, "`alloc` takes `off` or the path of an allocator"));
    }
    Ok(Alloc::InFrontOf(given.value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::lexer::lex;

    fn main(text: &str) -> Result<MainOptions, Error<usize>> {
        MainOptions::read(&lex(text))
    }

    fn test(text: &str) -> Result<TestOptions, Error<usize>> {
        TestOptions::read(&lex(text))
    }

    #[test]
    fn without_options_the_documented_defaults_hold() {
        let options = main("").unwrap();
        assert!(options.procs.is_none() && options.stack.is_none());
        assert!(matches!(options.alloc, Alloc::Default));
        let options = test("").unwrap();
        assert!(options.procs.is_none() && options.deny_leaks);
        assert_eq!(options.timeout_millis, 60_000);
    }

    #[test]
    fn counts_may_be_literals_or_expressions() {
        for value in ["4", "0x10", "N", "2 * N", "1 << 20", "limits::procs()", "⟦4⟧", "0 + 1"] {
            let options = main(&format!("stack = 1, procs = {value}")).unwrap();
            assert_eq!(options.procs.unwrap(), 6..6 + lex(value).len());
            assert_eq!(options.stack.unwrap(), 2..3);
            assert!(test(&format!("procs = {value}")).unwrap().procs.is_some());
        }
    }

    #[test]
    fn counts_that_are_not_positive_integers_are_refused() {
        for name in ["procs", "stack"] {
            for value in ["0", "0usize", "0x0", "-1", "1.5", "\"4\"", "⟦0⟧"] {
                let error = main(&format!("{name} = {value}")).unwrap_err();
                assert_eq!(error.message, format!("`{name}` takes an integer, 1 or more"));
                assert_eq!(error.span, "procs = ".len());
            }
        }
    }

    #[test]
    fn a_time_limit_is_a_literal_in_seconds() {
        for (value, millis) in [("5", 5000), ("0.25", 250), ("1e1", 10_000), ("⟦3⟧", 3000)] {
            assert_eq!(test(&format!("timeout = {value}")).unwrap().timeout_millis, millis);
        }
        for value in ["0", "0.0", "-1", "N", "\"5\"", "2 * 3", "1e300"] {
            let error = test(&format!("timeout = {value}")).unwrap_err();
            assert!(error.message.starts_with("`timeout` takes seconds"), "{error:?}");
            assert_eq!(error.span, "timeout = ".len());
        }
    }

    #[test]
    fn leaks_are_allowed_or_denied() {
        assert!(!test("leaks = allow").unwrap().deny_leaks);
        assert!(test("leaks = deny").unwrap().deny_leaks);
        for value in ["true", "1", "\"allow\"", "allow::it"] {
            let error = test(&format!("leaks = {value}")).unwrap_err();
            assert_eq!(error.message, "`leaks` takes `allow` or `deny`");
        }
    }

    #[test]
    fn virtual_time_may_have_a_seed_and_has_one_p() {
        let options = test("virtual_time, seed = 5, timeout = 1").unwrap();
        assert!(options.virtual_time && options.seed == Some(4..5));
        assert!(!test("").unwrap().virtual_time);
        let error = test("procs = 2, virtual_time").unwrap_err();
        assert!(error.message.contains("remove `procs`") && error.span == 0, "{error:?}");
        let error = test("seed = 2").unwrap_err();
        assert!(error.message.contains("needs `virtual_time`"), "{error:?}");
    }

    #[test]
    fn an_allocator_is_off_or_a_path() {
        assert!(matches!(main("alloc = off").unwrap().alloc, Alloc::Off));
        for value in ["MiMalloc", "a::MiMalloc", "::a::MiMalloc", "<A as B>::C", "off::Alloc"] {
            let options = main(&format!("alloc = {value}")).unwrap();
            let Alloc::InFrontOf(path) = options.alloc else { panic!("{value}") };
            assert_eq!(path, 2..2 + lex(value).len());
        }
        for value in ["\"off\"", "0", "-1", "{ off }"] {
            let error = main(&format!("alloc = {value}")).unwrap_err();
            assert_eq!(error.message, "`alloc` takes `off` or the path of an allocator");
        }
    }

    #[test]
    fn main_and_test_refuse_each_other_s_options() {
        assert!(main("timeout = 1").unwrap_err().message.contains("`stack = 8 << 20`"));
        assert!(test("stack = 1").unwrap_err().message.contains("`leaks = allow`"));
    }
}
