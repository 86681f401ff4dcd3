"""Runs steps, keeps a ledger of what they did, and writes docs/TRUST.md from it."""
import datetime
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

from .suites import ROOT

LEDGER = os.path.join(ROOT, "target", "ci", "ledger.jsonl")
TRUST = os.path.join(ROOT, "docs", "TRUST.md")
LOGS = os.path.join(ROOT, "target", "ci", "logs")

# A step that takes longer hangs. Far above what any step needs on a busy machine.
LIMIT_SECONDS = 3600

# The lines with which tests and benches end.
CARGO_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.M)
PLAIN_RESULT = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def state_of(sources):
    """Names the state of these files: commits that change only other files do not change it."""
    state = git("ls-files", "-s", "--", *sources) + git("diff", "HEAD", "--", *sources)
    return hashlib.sha1(state.encode()).hexdigest()[:12]


def commit():
    """The commit, and whether anything but the document of results differs from it."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/TRUST.md")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


class Outcome:
    """How a step ended."""

    def __init__(self, text, status, seconds, log):
        self.status, self.seconds, self.log, self.text = status, seconds, log, text
        found = CARGO_RESULT.findall(text) + PLAIN_RESULT.findall(text)
        self.passed = sum(int(passed) for passed, _ in found)
        self.failed = sum(int(failed) for _, failed in found)
        self.counted = bool(found)

    @property
    def ok(self):
        """A step that printed how many tests passed, and ran none, did not pass."""
        return self.status == 0 and self.failed == 0 and (self.passed > 0 or not self.counted)


# Process groups of the commands that run now.
RUNNING = set()

# Set once a signal ends this script: the commands that end from then on were killed.
ENDING = threading.Event()


def end_on_signal():
    """SIGINT and SIGTERM end this script together with the commands it runs. Call it from the main thread."""

    def end(number, _):
        ENDING.set()
        for group in list(RUNNING):
            os.killpg(group, signal.SIGKILL)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def run(name, command, environment=None, cpus=None, limit=LIMIT_SECONDS, on_hang=None):
    """Runs a command in a process group of its own. `on_hang(pgid)` is called before a command that hangs is ended."""
    os.makedirs(LOGS, exist_ok=True)
    log = os.path.join(LOGS, re.sub(r"[^\w.-]+", "_", name) + ".log")
    env = {**os.environ, "RUST_BACKTRACE": "0", **(environment or {})}
    if "RUSTFLAGS" not in (environment or {}):
        env.pop("RUSTFLAGS", None)
    env.pop("CARGO_TARGET_DIR", None)

    def prepare():
        if cpus:
            os.sched_setaffinity(0, cpus)

    start = time.monotonic()
    with open(log, "w") as output:
        shell = isinstance(command, str)
        child = subprocess.Popen(
            ["bash", "-ec", command] if shell else command,
            cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=prepare,
        )
        RUNNING.add(child.pid)
        try:
            status = child.wait(limit)
        except BaseException as error:
            if on_hang and isinstance(error, subprocess.TimeoutExpired):
                on_hang(child.pid)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = 124
        finally:
            RUNNING.discard(child.pid)
    with open(log, errors="replace") as output:
        text = output.read()
    return Outcome(text, status, time.monotonic() - start, log)


def show_failure(outcome):
    """The end of what a step printed, and the names of the tests that failed."""
    lines = outcome.text.splitlines()
    failed = [line for line in lines if line.endswith("... FAILED")]
    print("\n".join(lines[-60:]))
    print("\n".join(failed))
    print(f"status {outcome.status}; all of it: {os.path.relpath(outcome.log, ROOT)}", flush=True)


class Ledger:
    """What ran on this machine, a line of JSON each.

    A row names the sources that the step is built from and their state. The row counts while the state is the same, so
    a change to one suite leaves the rows of all other suites valid.
    """

    def __init__(self):
        self.rows, self.states = [], {}
        if os.path.exists(LEDGER):
            with open(LEDGER) as lines:
                self.rows = [json.loads(line) for line in lines if line.strip()]

    def state(self, sources):
        """The state of the sources when this script first asked: files may change while steps run."""
        key = tuple(sources)
        if key not in self.states:
            self.states[key] = state_of(key)
        return self.states[key]

    def add(self, kind, step, sources, outcome, **more):
        row = dict(
            kind=kind, step=step, sources=sources, state=self.state(sources), commit=commit(), date=today(),
            ok=outcome.ok, passed=outcome.passed, failed=outcome.failed, seconds=round(outcome.seconds, 1), **more,
        )
        self.rows.append(row)
        os.makedirs(os.path.dirname(LEDGER), exist_ok=True)
        with open(LEDGER, "a") as lines:
            lines.write(json.dumps(row) + "\n")
        return row

    def of(self, kind):
        """Rows whose sources have not changed since."""
        return [row for row in self.rows if row["kind"] == kind and row["state"] == self.state(row["sources"])]

    def has_passed(self, kind, step):
        return any(row["ok"] for row in self.of(kind) if row["step"] == step)


def machine():
    """What the numbers were seen on."""
    with open("/proc/meminfo") as lines:
        memory = round(int(lines.readline().split()[1]) / 2**20)
    return f"{os.cpu_count()} CPUs, {memory} GiB, Linux {os.uname().release}"


def write_trust(section, text):
    """Replaces one section of docs/TRUST.md, from its heading to the next."""
    with open(TRUST) as file:
        old = file.read()
    heading = f"## {section}\n"
    if heading not in old:
        raise SystemExit(f"docs/TRUST.md has no section `{section}`")
    before, after = old.split(heading, 1)
    rest = after.find("\n## ")
    after = after[rest + 1 :] if rest >= 0 else ""
    new = f"{before}{heading}\n{text.strip()}\n" + (f"\n{after}" if after else "")
    with open(TRUST, "w") as file:
        file.write(new)
    print(f"docs/TRUST.md: section `{section}` written", file=sys.stderr)
