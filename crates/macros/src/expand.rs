//! What comes out: the function inside a wrapper of the same name.
//!
//! ```text
//! #[…] pub fn main() -> ::std::process::ExitCode {
//!     fn main() -> R { … }
//!     ::gosched::__macros::main(::gosched::__macros::Options::new(), main)
//! }
//! ```
//!
//! - All attributes go on the wrapper: there the test harness finds `#[should_panic]`, and lint
//!   levels reach the function inside.
//! - In its own body the function's name means the function, as it did before.
//! - Our names start at `::`, and our tokens belong to the macro: nothing that the user
//!   calls `std`, `Options` or `test` gets in between.
//! - The result stays inside, reduced to an exit code, so that it need not be `Send`.

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
            // The harness takes `#[should_panic]` only on functions that return nothing.
            body.extend(code("let _: ::std::process::ExitCode ="));
            body.extend(call);
            body.extend(code(";"));
            parts.wrapper("", body)
        });
        wrapper
    })
}

/// The program's global allocator: in the function, where nobody meets its name.
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

/// Checks the function, then builds; or reports what is wrong with the options and with it.
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
            // Kept, so that what refers to the item is not reported too.
            code.extend(trees);
            code
        }
    }
}

/// The tokens of an item, which a `macro_rules!` macro (`$f:item`) hands over in invisible
/// delimiters.
fn ungrouped(item: TokenStream) -> Vec<TokenTree> {
    let trees: Vec<TokenTree> = item.into_iter().collect();
    match &trees[..] {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => {
            ungrouped(group.stream())
        }
        _ => trees,
    }
}

/// The user's function, taken apart.
struct Parts {
    trees: Vec<TokenTree>,
    function: Function,
}

impl Parts {
    /// The function as it was written, less what stands before `fn`.
    fn whole(&self) -> TokenStream {
        part(&self.trees, self.function.whole.clone())
    }

    /// Attributes, visibility, `fn`, name and `()` as they were written; then our `output` and
    /// `body`.
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

    /// `path(options, name)`, where a result that cannot end a program is reported as the
    /// function's result type.
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

    /// The path of a test, crate and modules included, as an expression.
    fn test_name(&self) -> TokenStream {
        let name = format!("::{}", self.trees[self.function.name]);
        let mut arguments = code("::std::module_path!(),");
        arguments.extend([TokenTree::Literal(Literal::string(&name))]);
        let mut concat = code("::std::concat!");
        concat.extend(grouped(Delimiter::Parenthesis, arguments));
        concat
    }
}

/// `.name(const { value })`, or nothing. That it is a constant is checked by the compiler, in words
/// that point at the user's expression.
fn setter(name: &str, attribute: &[TokenTree], value: Option<Range<usize>>) -> TokenStream {
    let Some(value) = value else { return TokenStream::new() };
    let end = attribute[value.end - 1].span();
    let mut block = Group::new(Delimiter::Brace, part(attribute, value));
    // An expression that breaks off does so at its own end.
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

/// Our own tokens: of the macro, so that lints do not take them for the user's.
fn code(text: &str) -> TokenStream {
    with_span(text.parse().expect("the text is ours"), Span::mixed_site())
}

fn compile_error(error: Error<Span>) -> TokenStream {
    let text = format!("::std::compile_error! {{ {:?} }}", error.message);
    with_span(text.parse().expect("the text is ours"), error.span)
}

/// The same tokens at another place.
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
