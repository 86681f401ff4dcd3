"""The table `tests/suites.txt`: which suite runs in which build, and when."""
import os
import shlex
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "tests", "suites.txt")

# What every suite is built from: all crates but the command, which no other crate uses. And what a command of the
# table can use.
PRODUCT = [f"crates/{name}" for name in sorted(os.listdir(os.path.join(ROOT, "crates"))) if name != "cli"]
PRODUCT += ["Cargo.toml", "Cargo.lock"]
EVERYTHING = [*PRODUCT, "benches", "tests", "examples"]
HELPERS = ["tests/Cargo.toml", "tests/build.rs", "tests/src", "tests/c", "tests/cdylib", "tests/go"]

# What a mark in a column says: which commands run the suite in that build.
WORKSPACE, SHORT, FULL, NEVER = "t", "c", "m", "-"


@dataclass
class Build:
    """A way to build and run the suites."""

    name: str
    target: str
    environment: dict
    arguments: list
    features: list
    harness: list
    cpus: set


@dataclass
class Suite:
    """One test binary: where it lies, and its mark for each build."""

    place: str
    name: str
    arguments: list
    features: list
    sources: list
    waits: bool = False
    marks: dict = field(default_factory=dict)

    def __str__(self):
        return self.name if self.place == "tests" else f"{self.place}:{self.name}"


@dataclass
class Command:
    """A step that is no suite."""

    name: str
    mark: str
    line: str

    @property
    def sources(self):
        """The files that the command is built from, or reads."""
        if self.name == "documented":
            return [".", ":!docs/TRUST.md"]
        return [*EVERYTHING, "crates/cli", "ci/page"] if self.name == "page" else EVERYTHING


class Table:
    """The whole file."""

    def __init__(self, path=TABLE):
        self.builds, self.suites, self.commands = {}, [], []
        places, columns, section = {}, [], None
        with open(path) as lines:
            for line in lines:
                line = line.split("#")[0].rstrip()
                if not line:
                    continue
                if line.startswith("["):
                    section = line.strip("[]")
                    continue
                first, *rest = line.split(None, 1)
                rest = rest[0] if rest else ""
                if section == "places":
                    folder, features, arguments = rest.split(None, 2)
                    places[first] = folder, features.split(","), arguments
                elif section == "builds":
                    self.builds[first] = parse_build(first, rest)
                elif section == "commands":
                    mark, command = rest.split(None, 1)
                    self.commands.append(Command(first, mark, command))
                elif section == "suites" and not columns:
                    columns = rest.split()
                    assert columns[0] == "waits" and columns[1:] == list(self.builds), columns
                elif section == "suites":
                    place, _, name = first.rpartition(":")
                    place = place or "tests"
                    waits, *marks = rest.split()
                    assert len(marks) == len(self.builds), line
                    folder, features, arguments = places[place]
                    arguments = arguments.replace("NAME", name).split()
                    marks = dict(zip(self.builds, marks))
                    sources = sources_of(folder, name)
                    self.suites.append(Suite(place, name, arguments, features, sources, waits == "w", marks))

    def of(self, build, marks):
        """The suites that have one of these marks in this build."""
        return [suite for suite in self.suites if suite.marks[build] in marks]

    def named(self, names):
        """The suites of these names; all, where there are none."""
        known = {str(suite): suite for suite in self.suites}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise SystemExit(f"no suite is called {', '.join(unknown)}: see tests/suites.txt")
        return [known[name] for name in names] or self.suites


def sources_of(folder, name):
    """The files that a suite is built from, or reads. A suite of the package `gosched-tests` is one file and the
    package's helpers; other places are counted whole."""
    if name == "house_rules":
        return [".", ":!docs/TRUST.md"]
    if folder == "-":
        return [*PRODUCT, *HELPERS, "README.md"] if name == "gosched-tests" else PRODUCT
    if folder == "tests/tests":
        return [*PRODUCT, *HELPERS, f"{folder}/{name}.rs", f"{folder}/{name}"]
    return [*PRODUCT, os.path.dirname(folder)]


def parse_build(name, text):
    """`TARGET [VARIABLE=VALUE ...] [CARGO ARGUMENT ...] [-- HARNESS ARGUMENT ...]`; CPUS=0 binds the suites to CPU 0."""
    target, *words = shlex.split(text)
    environment, cpus = {}, None
    while words and "=" in words[0] and not words[0].startswith("-"):
        key, value = words.pop(0).split("=", 1)
        if key == "CPUS":
            cpus = {int(cpu) for cpu in value.split(",")}
        else:
            environment[key] = value
    split = words.index("--") if "--" in words else len(words)
    arguments, harness = words[:split], words[split + 1 :]
    features = []
    while "--features" in arguments:
        at = arguments.index("--features")
        features.append(arguments[at + 1])
        del arguments[at : at + 2]
    return Build(name, target, environment, arguments, features, harness, cpus)


def together(name, chosen):
    """Suites of the package `gosched-tests` as one, for a single command."""
    arguments = ["-p", "gosched-tests", *(word for suite in chosen for word in ("--test", suite.name))]
    sources = sorted({path for suite in chosen for path in suite.sources})
    return Suite("tests", name, arguments, chosen[0].features, sources)


def cargo_test(build, suite, extra=(), harness=()):
    """The command that runs a suite in a build."""
    features = [word for name in build.features if name in suite.features for word in ("--features", name)]
    command = ["cargo", "test", "--target-dir", build.target, *build.arguments, *features, *suite.arguments, *extra]
    harness = [*build.harness, *harness]
    return command + (["--", *harness] if harness else [])
