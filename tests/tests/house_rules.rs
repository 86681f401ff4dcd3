//! The rules of this tree, checked by reading it.

use gosched_tests::modules::{Modules, cycles};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Adds all files below a folder whose names end with one of `endings`, with their text. Symbolic
/// links, folders that cargo builds into, and files that are not text are left out.
fn walk(folder: &Path, endings: &[&str], found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || ["target", ".git", "__pycache__"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.extend(std::fs::read_to_string(&path).ok().map(|text| (path, text)));
        }
    }
}

/// Adds all source files below a folder, with their text.
fn visit(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    walk(folder, &[".rs"], found);
}

/// All source files of the crates, with their text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    visit(&root().join("crates"), &mut found);
    assert!(found.len() > 20, "the sources are where they were");
    found
}

/// Product sources: no tests, benches or examples.
fn product() -> Vec<(PathBuf, String)> {
    let ours = |path: &Path| {
        let text = path.to_string_lossy().replace('\\', "/");
        text.contains("/src/") && !text.ends_with("_tests.rs")
    };
    sources().into_iter().filter(|(path, _)| ours(path)).collect()
}

/// Lines of a file before its unit tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    text[..end].lines().zip(1..).map(|(line, number)| (number, line))
}

/// The tag of a line such as `// PAIR slab-base: …`.
fn tag(line: &str) -> Option<&str> {
    let rest = line.split("PAIR ").nth(1)?;
    rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next()
}

const ORDERINGS: [&str; 5] =
    ["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst", "fence("];

#[test]
fn every_strong_ordering_names_its_other_end() {
    let mut uses: HashMap<String, Vec<String>> = HashMap::new();
    for (path, text) in product() {
        let lines: Vec<(usize, &str)> = code(&text).collect();
        for (at, (number, line)) in lines.iter().enumerate() {
            if line.trim_start().starts_with("//") || !ORDERINGS.iter().any(|o| line.contains(o)) {
                continue;
            }
            let place = format!("{}:{number}", path.display());
            let above = lines[at.saturating_sub(5)..at].iter().rev();
            let tag = above.map(|(_, line)| *line).find_map(tag);
            let tag = tag.unwrap_or_else(|| panic!("{place}: no PAIR above {line}"));
            uses.entry(tag.to_owned()).or_default().push(place);
        }
    }
    assert!(!uses.is_empty());
    for (tag, places) in uses {
        assert!(places.len() >= 2, "PAIR {tag} has one end only: {places:?}");
    }
}

#[test]
fn files_open_with_what_they_are() {
    for (path, text) in sources() {
        let first = text.lines().next().unwrap_or_default();
        let tests = path.to_string_lossy().ends_with("_tests.rs");
        assert!(tests || first.starts_with("//! "), "{}: {first}", path.display());
    }
}

/// Heads that describe a whole crate or the book.
const HEADS_OF_WHOLES: [&str; 2] = ["gosched/src/lib.rs", "gosched/src/book/mod.rs"];

#[test]
fn every_head_says_what_its_module_never_does() {
    let lacks = |(path, text): &(PathBuf, String)| {
        let head = text.lines().take_while(|line| line.starts_with("//!"));
        let says = head.map(str::to_lowercase).any(|line| line.contains("never"));
        !says && !HEADS_OF_WHOLES.iter().any(|whole| path.ends_with(whole))
    };
    let lacking: Vec<_> = product().into_iter().filter(lacks).map(|(path, _)| path).collect();
    assert!(lacking.is_empty(), "the head does not say what the module never does: {lacking:#?}");
}

/// Calls that stand in one file only, so that a fix reaches all their users.
const ONLY_IN: [(&str, &str); 6] = [
    ("libc::_exit(", "fiber/src/base/exit_guard.rs"),
    ("libc::exit(", "fiber/src/base/exit_guard.rs"),
    ("process::abort()", "fiber/src/base/exit_guard.rs"),
    ("libc::write(2,", "fiber/src/base/stderr.rs"),
    ("libc::dl_iterate_phdr(", "fiber/src/base/elf/mod.rs"),
    ("libc::Elf64_Phdr", "fiber/src/base/elf/mod.rs"),
];

#[test]
fn each_mechanism_stands_in_one_file() {
    for (call, home) in ONLY_IN {
        let files = product().into_iter().filter(|(_, text)| {
            code(text).any(|(_, line)| !line.trim_start().starts_with("//") && line.contains(call))
        });
        let files: Vec<_> = files.map(|(path, _)| path).collect();
        assert!(files.len() == 1 && files[0].ends_with(home), "`{call}` stands in {files:#?}");
    }
}

#[test]
fn files_stay_readable() {
    for (path, text) in product() {
        let lines = code(&text).count();
        assert!(lines <= 600, "{}: {lines} lines: look for the second story", path.display());
    }
}

#[test]
fn banned_names_do_not_come_in() {
    for (path, text) in product() {
        for (number, line) in code(&text) {
            let named = ["struct ", "enum ", "trait ", "mod "].iter().find_map(|kind| {
                let name = line.split(kind).nth(1)?;
                name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
            });
            let banned = ["Inner", "Shared", "Handle", "Manager", "util", "utils"];
            if let Some(name) = named.filter(|name| banned.contains(name)) {
                panic!("{}:{number}: `{name}` says nothing", path.display());
            }
        }
    }
}

/// The chapters of the book, with their text.
fn chapters() -> Vec<(PathBuf, String)> {
    let folder = root().join("crates/gosched/src/book");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_chapter = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let read = |path: PathBuf| (path.clone(), std::fs::read_to_string(&path).unwrap());
    let found: Vec<_> = paths.filter(is_chapter).map(read).collect();
    assert!(found.len() > 15, "the chapters are where they were");
    found
}

/// Chapters that are tables, without a design.
const TABLES: [&str; 2] = ["differences_from_go.md", "order_and_scenarios.md"];

#[test]
fn chapters_have_all_parts_and_name_real_tests() {
    let mut tests = String::new();
    for suites in ["tests/tests", "tests/async/tests", "tests/models/src"] {
        let mut found = Vec::new();
        visit(&root().join(suites), &mut found);
        found.iter().for_each(|(_, text)| tests += text);
    }
    let mut files = Vec::new();
    for (path, text) in sources() {
        tests += &text;
        files.push(path);
    }
    let book = std::fs::read_to_string(root().join("crates/gosched/src/book/mod.rs")).unwrap();
    for (path, text) in chapters() {
        let (name, place) = (path.file_name().unwrap().to_string_lossy(), path.display());
        assert!(book.contains(&format!("include_str!(\"{name}\")")), "mod.rs lacks {name}");
        assert!(text.lines().count() < 200, "{place} is too long");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_design = !TABLES.contains(&&*name);
        for part in ["**Problem.**", "**Rule", "**What we rejected.**", "**Files.**", "**Tests.**"]
        {
            assert!(!is_design || text.contains(part), "{place} lacks the part {part}");
        }
        let why = ["hy it cannot fail", "hy it cannot lie", "hy no w"];
        let has_why = why.iter().any(|why| flat.contains(why)) || name == "dependencies.md";
        assert!(!is_design || has_why, "{place} does not say why it cannot fail");
        // Figures that were measured belong into docs/BENCHMARKS.md.
        for (at, _) in text.match_indices(" ns") {
            let is_unit = !text[at + 3..].starts_with(|c: char| c.is_alphanumeric());
            let follows_number = text[..at].ends_with(|c: char| c.is_ascii_digit());
            assert!(!(is_unit && follows_number), "{place}: a measurement in nanoseconds");
        }
        // A path in backquotes leads to a file of this tree.
        for name in text.split('`').skip(1).step_by(2) {
            let is_path = name.ends_with(".rs") && name.contains('/') && !name.contains('{');
            let exists =
                || root().join(name).exists() || files.iter().any(|file| file.ends_with(name));
            assert!(!is_path || exists(), "{place}: {name} is not there");
        }
        // "chapter `name`" names a chapter.
        for after in flat.split("hapter `").skip(1) {
            let named = after.split('`').next().unwrap();
            let chapter = format!("mod {named} {{}}");
            assert!(book.contains(&chapter), "{place}: there is no chapter {named}");
        }
        // A name in backquotes with three or more underscores is a test's (or its beginning).
        for name in text.split('`').skip(1).step_by(2) {
            let name = name.trim_end_matches('…');
            let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_numeric());
            let is_chapter = book.contains(&format!("mod {name} {{}}"));
            let is_libc = name.starts_with("pthread_");
            if plain && name.matches('_').count() >= 3 && !is_chapter && !is_libc {
                assert!(tests.contains(&format!("fn {name}")), "{place}: there is no test {name}");
            }
        }
    }
}

/// The lines of a text without comments, each without indentation. A blank line ends a group of
/// lines; several blank lines count as one.
fn code_lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let mut found: Vec<&str> = lines.collect();
    found.dedup_by(|next, before| next.is_empty() && before.is_empty());
    found
}

/// A block of a chapter whose first line is `// path` quotes that file: a whole group of lines, so
/// that a new line of the group is noticed. Comments may differ. A path without a crate is below
/// `crates/gosched/src`. Other blocks are pictures.
#[test]
fn chapters_quote_the_code() {
    let (mut quotations, mut pictures) = (0, 0);
    for (path, text) in chapters() {
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').unwrap();
            assert_eq!(language, "text", "{}: quote with ```text", path.display());
            let first = block.lines().next().unwrap_or_default();
            let Some(file) = first.strip_prefix("//") else {
                pictures += 1;
                continue;
            };
            let file = file.trim();
            let place = if file.starts_with("crates/") { "" } else { "crates/gosched/src" };
            let source = std::fs::read_to_string(root().join(place).join(file)).unwrap();
            let (quoted, lines) = (code_lines(block), code_lines(&source));
            let is_end = |line: Option<&&str>| {
                line.is_none_or(|line| {
                    line.is_empty() || line.ends_with(['{', '}', '(', ')', ',', ']'])
                })
            };
            let is_whole = |at: usize| {
                let before = at.checked_sub(1).and_then(|before| lines.get(before));
                is_end(before) && is_end(lines.get(at + quoted.len()))
            };
            let mut places = lines.windows(quoted.len()).enumerate();
            let is_there = places.any(|(at, window)| window == quoted && is_whole(at));
            let place = path.display();
            assert!(is_there, "{place}: {file} does not contain this group of lines:\n{block}");
            quotations += 1;
        }
    }
    assert_eq!((quotations, pictures), (QUOTATIONS, 1), "quotations and pictures in the book");
}

/// Number of quotations in the book. A chapter that lists what code does quotes the code.
const QUOTATIONS: usize = 16;

/// Words that leave the reader searching for what is meant. CONTRIBUTING.md, "Style", has the rule.
const BANNED_WORDS: [&str; 23] = [
    "nobody",
    "somebody",
    "someone",
    "anybody",
    "anyone",
    "no one",
    "whoever",
    "those who",
    "all who",
    "in vain",
    "for ever",
    "be had",
    "so many",
    "so often",
    "so much",
    "is told",
    "are told",
    "was told",
    "were told",
    "be told",
    "been told",
    "any more",
    "so long as",
];

/// Returns the banned words in a text.
fn banned_words(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let contains = move |words: &str| {
        text.match_indices(words).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + words.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    };
    BANNED_WORDS.into_iter().filter(move |words| contains(words))
}

/// All files of the tree whose names end with one of `endings`, with their text.
fn all_files(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root(), endings, &mut found);
    assert!(found.len() > 10, "the files are where they were");
    found
}

/// Returns the prose of a source file as groups of adjacent lines: comments, and in the product
/// also the texts of strings. Each group has the number of its first line.
fn prose(text: &str, has_strings: bool) -> Vec<(usize, String)> {
    let mut groups: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (line, number) in text.lines().zip(1..) {
        if let Some((_, comment)) = line.split_once("//") {
            if last + 1 != number || groups.is_empty() {
                groups.push((number, String::new()));
            }
            last = number;
            let comment = comment.trim_start_matches(['/', '!']).trim();
            groups.last_mut().unwrap().1 += &format!("{comment} ");
        } else if has_strings && line.contains('"') {
            groups.push((number, line.split('"').skip(1).step_by(2).collect()));
        }
    }
    groups
}

/// Comments and documents say what they mean with nouns, and comments wrap like code.
#[test]
fn prose_is_plain_and_comments_fit() {
    const WIDTH: usize = 100;
    let mut faults = String::new();
    let mut fault = |path: &Path, number: usize, what: &str| {
        faults += &format!("{}:{number}: {what}\n", path.display());
    };
    let own = |path: &Path| path.ends_with("tests/tests/house_rules.rs");
    for (path, text) in all_files(&[".rs"]).iter().filter(|(path, _)| !own(path)) {
        let is_product = path.strip_prefix(root()).is_ok_and(|path| path.starts_with("crates"));
        for (number, group) in prose(text, is_product) {
            banned_words(&group).for_each(|words| fault(path, number, words));
        }
        for (line, number) in text.lines().zip(1..) {
            let is_comment = line.trim_start().starts_with("//") || line.contains(" // ");
            if is_comment && line.chars().count() > WIDTH {
                fault(path, number, "wider than 100 columns");
            }
        }
    }
    for (path, text) in all_files(&[".md", ".toml", ".py", ".c", "suites.txt"]) {
        let quoted = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let flat = quoted.split_whitespace().collect::<Vec<_>>().join(" ");
        banned_words(&flat).for_each(|words| fault(&path, 0, words));
    }
    assert!(faults.is_empty(), "say it with a noun (see CONTRIBUTING.md, Style):\n{faults}");
}

#[test]
fn the_environment_document_is_generated() {
    let document = root().join("docs/ENVIRONMENT.md");
    let wanted = gosched_tests::environment::document();
    if std::fs::read_to_string(&document).ok().as_ref() != Some(&wanted) {
        let fresh = root().join("target/ENVIRONMENT.md");
        std::fs::create_dir_all(fresh.parent().unwrap()).unwrap();
        std::fs::write(&fresh, wanted).unwrap();
        panic!("docs/ENVIRONMENT.md is stale: run `cp target/ENVIRONMENT.md docs/ENVIRONMENT.md`");
    }
}

/// One table has every variable, so that the document has every variable. (The command has no
/// variables of its own: it refuses to run with some of the library's.)
#[test]
fn the_environment_is_read_through_the_table() {
    let is_command = |path: &Path| path.to_string_lossy().contains("crates/cli/");
    let library = product().into_iter().filter(|(path, _)| !is_command(path));
    for (path, text) in library.filter(|(path, _)| !path.ends_with("environment.rs")) {
        for (number, line) in code(&text).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let reads = ["env::var", "getenv(", "Switch {"];
            let is_read = reads.iter().any(|read| line.contains(read)) && !line.contains("fn ");
            assert!(!is_read, "{}:{number}: add a `Switch` to environment.rs", path.display());
        }
    }
    // Every variable of ours, wherever it is named, is in the document.
    let document = gosched_tests::environment::document();
    let mut names = 0;
    let files = all_files(&[".rs", ".md", ".py", "run", "go", "soak", "flaky", "matrix", ".txt"]);
    for (path, text) in files.iter().filter(|(path, _)| !path.ends_with("house_rules.rs")) {
        for after in text.split("GOSCHED_").skip(1) {
            let is_end = |c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            let name = after.split(is_end).next().unwrap_or_default();
            // `GOSCHED_*` in prose, cargo's variable for a `--cfg`, a static that a macro makes.
            let is_other = name.is_empty() || ["NO_PORT", "ALLOC"].contains(&name);
            let is_listed =
                ["`", "="].iter().any(|end| document.contains(&format!("`GOSCHED_{name}{end}")));
            let is_listed = is_listed || name.starts_with("TEST");
            assert!(is_other || is_listed, "{}: GOSCHED_{name} is not listed", path.display());
            names += 1;
        }
    }
    assert!(names > 50, "{names} names");
}

/// A path in backquotes leads to a file or a folder, and a function before it, as in "`f`
/// (`x/y.rs`)" and "(`f`, `x/y.rs`)", is defined there. So is each name in the second column of the
/// glossary, in the files or folders of the third.
#[test]
fn the_architecture_names_what_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let source = root().join("crates/gosched/src");
    let places = [root(), source.clone(), source.join("sched"), root().join("crates/fiber/src")];
    let find = |path: &str| places.iter().map(|place| place.join(path)).find(|path| path.exists());
    let is_path = |name: &str| name.ends_with(".rs") || (name.ends_with('/') && name.len() > 1);
    let defines = |path: &Path, name: &str| {
        let mut files = Vec::new();
        if path.is_dir() {
            visit(path, &mut files);
        } else {
            files.push((path.to_owned(), std::fs::read_to_string(path).unwrap()));
        }
        let kinds = ["fn ", "struct ", "enum ", "trait ", "static ", "macro_rules! "];
        kinds.iter().any(|kind| {
            let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let definition = format!("{kind}{name}");
            files.iter().any(|(_, text)| text.split(&definition).skip(1).any(is_end))
        })
    };
    let (mut paths, mut names) = (0, 0);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted: Vec<&str> = flat.split('`').collect();
    for (at, name) in quoted.iter().enumerate().skip(1).step_by(2) {
        if !is_path(name) {
            continue;
        }
        let path = find(name).unwrap_or_else(|| panic!("{name} is not there"));
        paths += 1;
        let is_in_parentheses = at >= 3 && quoted[at - 1] == ", " && quoted[at - 3].ends_with('(');
        if at >= 3 && (quoted[at - 1] == " (" || is_in_parentheses) && !is_path(quoted[at - 2]) {
            let function = quoted[at - 2].rsplit("::").next().unwrap_or_default();
            assert!(defines(&path, function), "{name} has no `{function}`");
            names += 1;
        }
    }
    for line in text.lines() {
        let columns: Vec<&str> = line.split(" | ").collect();
        if let [_, ours, files] = columns[..]
            && files.contains('`')
            && ours.contains('`')
        {
            let files: Vec<_> = files.split('`').skip(1).step_by(2).filter_map(find).collect();
            for name in ours.split('`').skip(1).step_by(2) {
                let name = name.trim_end_matches('!');
                let name = name.split("::").next().unwrap_or(name);
                let is_defined = files.iter().any(|file| defines(file, name));
                assert!(is_defined, "the glossary: `{name}` is not in {files:?}");
                names += 1;
            }
        }
    }
    assert!(paths > 100 && names > 80, "{paths} paths, {names} names");
}

#[test]
fn platform_conditions_stand_on_mod_lines() {
    for (path, text) in product() {
        let lines: Vec<(usize, &str)> = code(&text).collect();
        for (at, (number, line)) in lines.iter().enumerate() {
            let condition = line.trim_start().starts_with("#[cfg(");
            if !condition || line.contains("test") {
                continue;
            }
            let next = lines[at + 1..].iter().map(|(_, line)| line.trim_start());
            let item = next.clone().find(|line| !line.starts_with("#[")).unwrap_or_default();
            let item = item.replace("pub(crate) ", "").replace("pub ", "");
            let allowed = ["mod ", "use "];
            assert!(
                allowed.iter().any(|start| item.starts_with(start)),
                "{}:{number}: a condition on {item}",
                path.display()
            );
        }
    }
}

/// Two copies of such a crate in one program fail at link time, with symbols that are there twice.
/// `links` makes cargo refuse them, and say why.
#[test]
fn a_crate_that_defines_symbols_tells_cargo() {
    let mut checked = 0;
    for (path, text) in product() {
        if !code(&text).any(|(_, line)| line.trim_start().starts_with("#[unsafe(no_mangle)]")) {
            continue;
        }
        let manifest = path.ancestors().map(|folder| folder.join("Cargo.toml"));
        let manifest = manifest.into_iter().find(|file| file.exists()).unwrap();
        let manifest = std::fs::read_to_string(manifest).unwrap();
        assert!(manifest.contains("\nlinks = "), "{}", path.display());
        checked += 1;
    }
    assert!(checked > 0, "the symbols are where they were");
}

/// The goroutine's journey: called, seen, blocked, scheduled, stored, recorded, shared,
/// grounded.
const FOLDER_ORDER: [&str; 8] =
    ["api", "observe", "block", "sched", "gmp", "probe", "protocol", "sys"];

/// Sees through `super`, and through what the root re-exports: `crate::go` is a reference to
/// `block`.
#[test]
fn imports_go_one_way() {
    let modules = Modules::read(&root().join("crates/gosched/src"));
    let rank = |path: &[String]| {
        path.first().and_then(|folder| FOLDER_ORDER.iter().position(|name| name == folder))
    };
    let mut seen = 0;
    for module in modules.below(&[]) {
        let Some(own) = rank(&module.path) else { continue };
        for (line, item) in &module.references {
            let item = modules.behind_re_export(item);
            let Some(other) = rank(item) else { continue };
            seen += 1;
            let (file, item) = (module.file.display(), item.join("::"));
            assert!(other >= own, "{file}:{line}: goes back to {item}");
        }
    }
    assert!(seen > 500, "the imports are where they were: {seen}");
}

/// The parts of `sched/`, from the top: a part refers to itself and to those after it.
const SCHEDULER: [&str; 17] = [
    "netpoll",
    "mod",
    "multi_thread",
    "one_to_one",
    "upcalls",
    "upcalls_none",
    "contract",
    "boot",
    "monitor",
    "inspect",
    "world",
    "run",
    "switch",
    "wake",
    "threads",
    "events",
    "state",
];

/// Prints the module graph of `sched/`: `ci/modules` shows it.
#[test]
fn the_scheduler_can_be_read_in_order() {
    let modules = Modules::read(&root().join("crates/gosched/src"));
    let sched = ["sched".to_owned()];
    let edges = modules.edges(&sched);
    let name = |path: &[String]| match &path[1..] {
        [] => "mod".to_owned(),
        path => path.join("::"),
    };
    let rank = |path: &[String]| {
        let part = path.get(1).map_or("mod", String::as_str);
        let rank = SCHEDULER.iter().position(|known| *known == part);
        rank.unwrap_or_else(|| panic!("`sched::{part}` has no place in the order"))
    };
    let mut upwards = Vec::new();
    for (from, targets) in &edges {
        let names: Vec<String> = targets.keys().map(|target| name(target)).collect();
        println!("{} -> {}", name(from), names.join(" "));
        for (target, places) in targets.iter().filter(|(target, _)| rank(target) < rank(from)) {
            upwards.push(format!("{} -> {}: {places:?}", name(from), name(target)));
        }
    }
    let cycles = cycles(&edges);
    let names = |cycle: &[&[String]]| cycle.iter().map(|path| name(path)).collect::<Vec<_>>();
    let largest = cycles.first().map_or(0, Vec::len);
    println!(
        "{} modules, {} references between modules, largest cycle {largest}, {} upward references",
        edges.len(),
        edges.values().map(|targets| targets.len()).sum::<usize>(),
        upwards.len(),
    );
    assert!(edges.len() > 60, "the modules are where they were");
    assert!(upwards.is_empty(), "{}", upwards.join("\n"));
    assert!(cycles.is_empty(), "modules import each other: {:?}", names(&cycles[0]));
}

#[test]
fn the_scheduler_uses_no_lock_that_user_code_can_hold() {
    for (path, text) in product() {
        let text_path = path.to_string_lossy().replace('\\', "/");
        let Some(inside) = text_path.split("crates/gosched/src/").nth(1) else { continue };
        if !["sched/", "gmp/", "protocol/"].iter().any(|folder| inside.starts_with(folder)) {
            continue;
        }
        for (number, line) in code(&text) {
            // By name in an import, by type or by value elsewhere; reasons to wait are named after
            // ours.
            let imported = line.contains("std::sync");
            let std_lock = ["Mutex", "RwLock", "Condvar", "mpsc"].iter().any(|name| {
                let used = ["<", "::new", "::default"].map(|end| format!("{name}{end}"));
                (imported && line.contains(name)) || used.iter().any(|used| line.contains(used))
            });
            assert!(!std_lock, "{inside}:{number}: {line}");
        }
    }
}

/// These macros panic if they cannot write. Use `warning!`, or `Stderr` of `gosched_fiber::fatal`.
#[test]
fn the_runtime_does_not_panic_when_it_cannot_print() {
    // Shows the output of a test: the test harness captures what these macros write.
    const EXCEPT: &str = "gosched/src/api/virtual_time.rs";
    const MACROS: [&str; 5] = ["eprintln!", "eprint!", "println!", "print!", "dbg!"];
    for (path, text) in product().into_iter().filter(|(path, _)| !path.ends_with(EXCEPT)) {
        for (number, line) in code(&text).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let found = MACROS.iter().find(|name| line.contains(**name));
            assert!(found.is_none(), "{}:{number}: {line}", path.display());
        }
    }
}

#[test]
fn every_suite_runs_with_the_allocation_cache() {
    let suites =
        std::fs::read_dir(root().join("tests/tests")).unwrap().map(|entry| entry.unwrap().path());
    for suite in suites.filter(|path| !path.ends_with("house_rules.rs")) {
        let text = std::fs::read_to_string(&suite).unwrap();
        assert!(
            text.contains("gosched_tests"),
            "{}: say `use gosched_tests as _;`",
            suite.display()
        );
    }
}

/// A row of the table of suites.
struct SuiteRow {
    place: String,
    name: String,
    /// For each build, in the order of the table; the first is `debug`.
    marks: Vec<String>,
}

/// `tests/suites.txt`: the folder of each place, and the rows.
fn suite_table() -> (HashMap<String, String>, Vec<SuiteRow>) {
    let text = std::fs::read_to_string(root().join("tests/suites.txt")).unwrap();
    let (mut folders, mut rows) = (HashMap::new(), Vec::new());
    let (mut section, mut builds, mut columns) = ("", Vec::new(), Vec::new());
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (section, words.as_slice()) {
            (_, []) => {}
            (_, [first]) if first.starts_with('[') => section = first.trim_matches(['[', ']']),
            ("places", [place, folder, ..]) => {
                folders.insert((*place).to_owned(), (*folder).to_owned());
            }
            ("builds", [build, ..]) => builds.push(*build),
            ("suites", ["suite", "waits", names @ ..]) => columns = names.to_vec(),
            ("suites", [suite, waits, marks @ ..]) => {
                assert_eq!(columns, builds, "a column for each build");
                assert_eq!(marks.len(), builds.len(), "{suite}: a mark for each build");
                assert!(["w", "-"].contains(waits), "{suite}: {waits}");
                let (place, name) = suite.split_once(':').unwrap_or(("tests", suite));
                let marks = marks.iter().map(|mark| (*mark).to_owned()).collect();
                rows.push(SuiteRow { place: place.to_owned(), name: name.to_owned(), marks });
            }
            _ => {}
        }
    }
    (folders, rows)
}

#[test]
fn every_suite_is_in_the_table_and_runs_in_some_build() {
    let (folders, rows) = suite_table();
    let mut files = 0;
    for (place, folder) in folders.iter().filter(|(_, folder)| *folder != "-") {
        let mut listed: Vec<&str> =
            rows.iter().filter(|row| row.place == *place).map(|row| row.name.as_str()).collect();
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let mut found: Vec<String> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files += found.len();
        listed.sort_unstable();
        found.sort_unstable();
        assert_eq!(listed, found, "suites of {folder}: in tests/suites.txt, and there");
    }
    assert!(files > 50, "the suites are where they were");
    for row in &rows {
        let known = row.marks.iter().all(|mark| ["t", "c", "m", "-"].contains(&mark.as_str()));
        assert!(known, "{}: {:?}", row.name, row.marks);
        assert!(row.marks.iter().any(|mark| mark != "-"), "{} runs in no build", row.name);
    }
}

#[test]
fn the_table_says_what_the_test_command_runs() {
    let manifest = std::fs::read_to_string(root().join("tests/Cargo.toml")).unwrap();
    let is_left_out = |name: &str| {
        let entry = format!("[[test]]\nname = \"{name}\"\ntest = false\n");
        manifest.contains(&entry)
    };
    for row in suite_table().1 {
        let in_workspace = !["allocators", "async", "servers"].contains(&row.place.as_str());
        let runs = in_workspace && !(row.place == "tests" && is_left_out(&row.name));
        assert_eq!(row.marks[0] == "t", runs, "{}:{}, column `debug`", row.place, row.name);
        let later = row.marks[1..].iter().all(|mark| mark != "t");
        assert!(later, "{}: `cargo test --workspace` builds for debugging only", row.name);
    }
}

/// Files of suites and of the programs they run.
fn suite_sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["tests/tests", "tests/src", "tests/async/tests", "examples"] {
        visit(&root().join(folder), &mut found);
    }
    assert!(found.len() > 80, "the suites are where they were");
    found
}

/// How late, how often and at what cost is judged by the bench `limits`, beside OS threads that do
/// the same.
#[test]
fn no_test_fails_because_something_took_long() {
    for (path, text) in suite_sources().iter().filter(|(path, _)| !path.ends_with("house_rules.rs"))
    {
        for assertion in text.split("assert").skip(1) {
            let condition = assertion.split(';').next().unwrap_or_default();
            let bounds = ["elapsed() <", "took <", "lasted <", "late <"];
            for bound in bounds.iter().filter_map(|bound| condition.split(bound).nth(1)) {
                let limit = bound.split(['&', ',']).next().unwrap_or_default();
                assert!(limit.contains("LIMIT"), "{}: assert{condition}", path.display());
            }
        }
    }
}
