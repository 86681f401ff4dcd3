//! The code that the attributes generate: the function inside a wrapper of the same name.
//!
//! ```text
//! #[…] pub fn main() -> ::std::process::ExitCode {
//!     fn main() -> R { … }
//!     ::gosched::__macros::main(::gosched::__macros::Options::new(), main)
//! }
//! ```
//!
//! - All attributes go on the wrapper: the test harness finds `#[should_panic]` there, and lint
//!   levels apply to the function inside too.
//! - In the function's own body, its name refers to the function itself, as it did before.
//! - Generated paths start with `::`, and generated tokens have the hygiene of the macro: they do
//!   not refer to anything that the user has named `std`, `Options` or `test`.
//! - The result stays inside the goroutine and is reduced to an exit code, so it need not be
//!   `Send`.
//!
//! The function inside is never changed: its tokens and their spans are the user's.

use crate::error::Error;
use crate::function::Function;
use crate::list::Attribute;
use crate::options::{Alloc, MAIN, MainOptions, TEST, TestOptions};
use crate::token;
use proc_macro::{Delimiter, Group, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::ops::Range;

/// Expands `#[gosched::main]`.
pub(crate) fn main(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute: Vec<TokenTree> = attribute.into_iter().collect();
    let options = MainOptions::read(&token::copy(&attribute)).map(|options| {
        let mut code = code("::gosched::__macros::Options::new()");
        code.extend(setter(".procs", &attribute, options.procs));
        code.extend(setter(".stack", &attribute, options.stack));
        (global_allocator(&options.alloc, &attribute), code)
    });
    wrap(&MAIN, item, options, |parts, (allocator, options)| {
        let mut body = allocator;
        body.extend(parts.whole());
        body.extend(parts.call("::gosched::__macros::main", options));
        parts.wrapper(EXIT_CODE, body)
    })
}

/// Expands `#[gosched::test]`.
pub(crate) fn test(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute: Vec<TokenTree> = attribute.into_iter().collect();
    let options = TestOptions::read(&token::copy(&attribute)).map(|options| {
        let mut code = setter(".procs", &attribute, options.procs);
        code.extend(self::code(&format!(
            ".timeout_millis({}).deny_leaks({}).virtual_time({})",
            options.timeout_millis, options.deny_leaks, options.virtual_time
        )));
        code.extend(setter(".seed", &attribute, options.seed));
        code
    });
    wrap(&TEST, item, options, |parts, setters| {
        let mut options = code("::gosched::__macros::TestOptions::new");
        options.extend(grouped(Delimiter::Parenthesis, parts.test_name()));
        options.extend(setters);
        let call = parts.call("::gosched::__macros::test", options);
        let mut body = parts.whole();
        let mut wrapper = code("#[::std::prelude::v1::test]");
        wrapper.extend(if parts.function.output.is_some() {
            body.extend(call);
            parts.wrapper(EXIT_CODE, body)
        } else {
            // The harness accepts `#[should_panic]` only on functions that return nothing.
            body.extend(code("let _: ::std::process::ExitCode ="));
            body.extend(call);
            body.extend(code(";"));
            parts.wrapper("", body)
        });
        wrapper
    })
}

/// Generates the program's global allocator. It is inside the function, where its name cannot
/// clash.
fn global_allocator(alloc: &Alloc, attribute: &[TokenTree]) -> TokenStream {
    let path = match alloc {
        Alloc::Off => return TokenStream::new(),
        Alloc::Default => code("::std::alloc::System"),
        Alloc::InFrontOf(path) => part(attribute, path.clone()),
    };
    let mut item = code("#[global_allocator] static GOSCHED_ALLOC: ::gosched::alloc::Alloc<");
    item.extend(path.clone());
    item.extend(code("> = ::gosched::alloc::Alloc::in_front_of"));
    item.extend(grouped(Delimiter::Parenthesis, path));
    item.extend(code(";"));
    item
}

const EXIT_CODE: &str = "-> ::std::process::ExitCode";

/// Checks the function, then builds the code. Reports errors in the options and in the function.
fn wrap<O>(
    attribute: &Attribute,
    item: TokenStream,
    options: Result<O, Error<Span>>,
    build: impl FnOnce(&Parts, O) -> TokenStream,
) -> TokenStream {
    let trees = ungrouped(item);
    let function = Function::read(attribute, &token::copy(&trees), Span::call_site());
    match (options, function) {
        (Ok(options), Ok(function)) => build(&Parts { trees, function }, options),
        (options, function) => {
            let mut code = TokenStream::new();
            code.extend(options.err().map(compile_error));
            code.extend(function.err().map(compile_error));
            // The item is kept, so that code that refers to it causes no further errors.
            code.extend(trees);
            code
        }
    }
}

/// Returns the tokens of an item. A `macro_rules!` macro passes an item (`$f:item`) inside
/// invisible delimiters.
fn ungrouped(item: TokenStream) -> Vec<TokenTree> {
    let trees: Vec<TokenTree> = item.into_iter().collect();
    match &trees[..] {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => {
            ungrouped(group.stream())
        }
        _ => trees,
    }
}

/// The user's function, and the positions of its parts.
struct Parts {
    trees: Vec<TokenTree>,
    function: Function,
}

impl Parts {
    /// Returns the function as written, without what precedes `fn`.
    fn whole(&self) -> TokenStream {
        part(&self.trees, self.function.whole.clone())
    }

    /// Generates the wrapper: attributes, visibility, `fn`, name and `()` as written, then `output`
    /// and `body`.
    fn wrapper(&self, output: &str, body: TokenStream) -> TokenStream {
        let mut wrapper = part(&self.trees, self.function.outside.clone());
        let head = self.function.whole.start..self.function.arguments + 1;
        wrapper.extend(part(&self.trees, head));
        wrapper.extend(code(output));
        let mut body = Group::new(Delimiter::Brace, body);
        body.set_span(Span::mixed_site().located_at(self.trees[self.function.body].span()));
        wrapper.extend([TokenTree::Group(body)]);
        wrapper
    }

    /// Generates `path(options, name)`. If the result type is not a `Termination`, the compiler's
    /// error points at the result type.
    fn call(&self, path: &str, options: TokenStream) -> TokenStream {
        let mut name = self.trees[self.function.name].clone();
        if let Some(output) = &self.function.output {
            name.set_span(name.span().located_at(self.trees[output.start].span()));
        }
        let comma = TokenTree::Punct(Punct::new(',', Spacing::Alone));
        let mut arguments = options;
        arguments.extend([comma, name]);
        let mut call = code(path);
        call.extend(grouped(Delimiter::Parenthesis, arguments));
        call
    }

    /// Generates an expression for the path of the test, with crate and modules.
    fn test_name(&self) -> TokenStream {
        let name = format!("::{}", self.trees[self.function.name]);
        let mut arguments = code("::std::module_path!(),");
        arguments.extend([TokenTree::Literal(Literal::string(&name))]);
        let mut concat = code("::std::concat!");
        concat.extend(grouped(Delimiter::Parenthesis, arguments));
        concat
    }
}

/// Generates `.name(const { value })`, or nothing without a value. The compiler checks that the
/// value is a constant, and its error points at the user's expression.
fn setter(name: &str, attribute: &[TokenTree], value: Option<Range<usize>>) -> TokenStream {
    let Some(value) = value else { return TokenStream::new() };
    let end = attribute[value.end - 1].span();
    let mut block = Group::new(Delimiter::Brace, part(attribute, value));
    // The error for an incomplete expression points at the end of the expression.
    block.set_span(Span::mixed_site().located_at(end));
    let mut constant = code("const");
    constant.extend([TokenTree::Group(block)]);
    let mut setter = code(name);
    setter.extend(grouped(Delimiter::Parenthesis, constant));
    setter
}

fn part(trees: &[TokenTree], range: Range<usize>) -> TokenStream {
    trees[range].iter().cloned().collect()
}

fn grouped(delimiter: Delimiter, inside: TokenStream) -> TokenStream {
    let mut group = Group::new(delimiter, inside);
    group.set_span(Span::mixed_site());
    TokenStream::from(TokenTree::Group(group))
}

/// Parses generated code. The tokens get the macro's span, so that lints do not take them for the
/// user's code.
fn code(text: &str) -> TokenStream {
    with_span(text.parse().expect("generated code can be parsed"), Span::mixed_site())
}

fn compile_error(error: Error<Span>) -> TokenStream {
    let text = format!("::std::compile_error! {{ {:?} }}", error.message);
    with_span(text.parse().expect("generated code can be parsed"), error.span)
}

/// Returns the same tokens with another span.
fn with_span(tokens: TokenStream, span: Span) -> TokenStream {
    let place = |mut tree: TokenTree| {
        if let TokenTree::Group(group) = &tree {
            tree = TokenTree::Group(Group::new(group.delimiter(), with_span(group.stream(), span)));
        }
        tree.set_span(span);
        tree
    };
    tokens.into_iter().map(place).collect()
}
