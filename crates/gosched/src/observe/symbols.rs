//! Names of code: the function, the file and the line, as far as the program contains them. This
//! module never walks a stack: `Inspector` does.

use super::level;
use super::library::Library;
use crate::sched::inspector::{Inspector, Module};
use std::collections::HashMap;
use std::rc::Rc;

/// The function that contains an address, or a function that was inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) name: String,
    /// File and line.
    pub(super) place: Option<(String, u32)>,
    /// The address of the function's first instruction. `None` if it was inlined or is not known.
    pub(super) start: Option<usize>,
    /// Whether the function belongs to the runtime, and so is hidden unless details are shown.
    pub(super) is_runtime: bool,
}

/// A cache of symbols: each address is looked up once.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    known: HashMap<usize, Rc<[Symbol]>>,
    /// The files of libraries, by build id. `None` if there is no such file.
    libraries: HashMap<Vec<u8>, Option<Library>>,
}

impl Symbols {
    /// Returns the functions at an address, the innermost first. Returns at least one.
    pub(super) fn at(&mut self, address: usize, inspector: &Inspector) -> Rc<[Symbol]> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let found: Rc<[Symbol]> = self.look_up(address, inspector).into();
        self.known.insert(address, found.clone());
        found
    }

    fn look_up(&mut self, address: usize, inspector: &Inspector) -> Vec<Symbol> {
        let mut found = match inspector.module(address) {
            None => vec![Symbol::new(format!("{address:#x}"), None)],
            Some(module) if module.path.as_os_str().is_empty() => in_program(address),
            Some(module) => self.in_library(&module),
        };
        if found.is_empty() {
            found.extend(inspector.module(address).map(|module| unknown(&module)));
        }
        found.iter_mut().for_each(|symbol| symbol.is_runtime = is_runtime(symbol));
        // All other functions were inlined into this one.
        if let Some(outermost) = found.last_mut() {
            outermost.start = inspector.function(address);
        }
        found
    }

    /// Looks up the functions at an address in a library.
    ///
    /// Does not use `backtrace`, which reads the list of libraries only once. If a library is
    /// unloaded and another is loaded at the same address, `backtrace` returns names from the old
    /// one.
    fn in_library(&mut self, module: &Module<'_>) -> Vec<Symbol> {
        let exported = || module.function.map(|name| Symbol::new(demangled(name), None));
        if module.id.is_empty() {
            return exported().into_iter().collect();
        }
        let open = || Library::open(module.path, module.id);
        let library = self.libraries.entry(module.id.to_vec()).or_insert_with(open);
        let mut found = library.as_ref().map_or(Vec::new(), |library| library.at(module.offset));
        if found.is_empty() {
            found.extend(exported());
        }
        found
    }
}

impl Symbol {
    pub(super) fn new(name: String, place: Option<(String, u32)>) -> Symbol {
        Symbol { name, place, start: None, is_runtime: false }
    }
}

/// Demangles the name of a symbol.
pub(super) fn demangled(name: &[u8]) -> String {
    format!("{:#}", backtrace::SymbolName::new(name))
}

fn in_program(address: usize) -> Vec<Symbol> {
    let mut found: Vec<Symbol> = Vec::new();
    backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        let place = symbol.filename().zip(symbol.lineno());
        let place = place.map(|(file, line)| (file.display().to_string(), line));
        found.push(Symbol::new(format!("{name:#}"), place));
    });
    found
}

/// Returns whether a function is shown.
pub(super) fn is_shown(symbol: &Symbol) -> bool {
    !symbol.is_runtime || level::is_detailed()
}

/// Returns a symbol for code without a name: the file and the offset in it, for use with
/// `addr2line`.
fn unknown(module: &Module<'_>) -> Symbol {
    let name = module.path.file_name().map_or("program".into(), |name| name.to_string_lossy());
    Symbol::new(format!("{name}+{:#x}", module.offset), None)
}

/// The modules of this crate whose functions are hidden unless details are shown.
const RUNTIME_MODULES: [&str; 16] = [
    "api::attributes",
    "block::goroutine::packet",
    "block::call",
    "block::chan::any_chan",
    "block::chan::core",
    "block::chan::wait",
    "block::exit",
    "block::io::polled",
    "block::limit",
    "block::select::machine",
    "block::sync::parking",
    "block::waiter",
    "gmp",
    "observe",
    "sched",
    "sys",
];

/// Returns whether a function belongs to the runtime, or to std's code between the runtime and the
/// program. Decides by the file if it is known, because a name may lack its modules.
fn is_runtime(symbol: &Symbol) -> bool {
    const STD: [&str; 5] = [
        "/library/core/src/ops/function.rs",
        "/library/core/src/panic/",
        "/library/std/src/panic.rs",
        "/library/std/src/panicking.rs",
        "/library/std/src/sys/backtrace.rs",
    ];
    let Some((file, _)) = &symbol.place else { return is_runtime_name(&symbol.name) };
    let module = own_file(file, "gosched", "gosched")
        .map(|file| file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::"));
    module.is_some_and(|module| is_runtime_module(&module))
        || own_file(file, "fiber", "gosched-fiber").is_some()
        || STD.iter().any(|std| file.contains(std))
}

/// Returns whether a module path is one of [`RUNTIME_MODULES`] or inside one of them.
fn is_runtime_module(path: &str) -> bool {
    let rest = |module| path.strip_prefix(module);
    RUNTIME_MODULES
        .iter()
        .filter_map(|module| rest(*module))
        .any(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns the path below `src`, if the file belongs to one of our crates, either in this
/// repository or as a published package.
fn own_file<'a>(file: &'a str, folder: &str, package: &str) -> Option<&'a str> {
    let crates = env!("CARGO_MANIFEST_DIR").trim_end_matches("gosched");
    let here = file.strip_prefix(crates).and_then(|file| file.strip_prefix(folder));
    let here = here.and_then(|file| file.strip_prefix("/src/"));
    let published = concat!("-", env!("CARGO_PKG_VERSION"), "/src/");
    here.or_else(|| file.split_once(&format!("/{package}{published}")).map(|(_, file)| file))
}

fn is_runtime_name(name: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "gosched_fiber::",
        "core::ops::function::",
        "core::panic::unwind_safe::",
        "std::panic::",
        "std::panicking::",
        "std::sys::backtrace::",
        "__rust_try",
        "__rustc::",
    ];
    let name = name.trim_start_matches(['<', '&']);
    name.strip_prefix("gosched::").is_some_and(is_runtime_module)
        || OTHERS.iter().any(|other| name.starts_with(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, file: Option<String>) -> Symbol {
        Symbol::new(name.into(), file.map(|file| (file, 1)))
    }

    #[test]
    fn the_modules_of_the_runtime_exist() {
        for module in RUNTIME_MODULES {
            let path = format!("{}/src/{}", env!("CARGO_MANIFEST_DIR"), module.replace("::", "/"));
            let files = [format!("{path}.rs"), format!("{path}/mod.rs")];
            assert!(files.iter().any(|file| std::path::Path::new(file).exists()), "{module}");
        }
    }

    #[test]
    fn functions_of_the_runtime_are_recognized_by_name_and_by_file() {
        for name in [
            "gosched::sched::switch::park::park_in_runtime",
            "<gosched::sched::state::global::Locked>::push",
            "core::ops::function::FnOnce::call_once",
        ] {
            assert!(is_runtime(&symbol(name, None)), "{name}");
        }
        for name in
            ["gosched::block::chan::receiver::Receiver<T>::recv", "my::gosched::sched::park"]
        {
            assert!(!is_runtime(&symbol(name, None)), "{name}");
        }
        let ours = |path: &str| Some(format!("{}/src/{path}", env!("CARGO_MANIFEST_DIR")));
        assert!(is_runtime(&symbol("park", ours("sched/mod.rs"))));
        assert!(!is_runtime(&symbol("recv", ours("block/chan/receiver.rs"))));
        let published = format!("/x/gosched-{}/src/sched/mod.rs", env!("CARGO_PKG_VERSION"));
        assert!(is_runtime(&symbol("park", Some(published))));
        for file in ["/home/me/sched/mod.rs", "/home/me/fiber/src/lib.rs", "src/sched/mod.rs"] {
            assert!(!is_runtime(&symbol("park", Some(file.into()))), "{file}");
        }
        assert!(is_runtime(&symbol(
            "call_once",
            Some("/rustc/1/library/core/src/ops/function.rs".into())
        )));
    }
}
