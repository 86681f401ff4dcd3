#!/usr/bin/env python3
"""What it costs that goroutines can be seen and counted: the peer's programs, built with and without.

    benches/probes.py [rounds] [workload ...]

Each round runs one program of each kind, in turn: `in` (as it is), `out` (`--cfg gosched_no_probes`), and `in`
once more, which shows how much a program differs from itself. Printed are, for each workload, the medians over all
rounds of in/out and in/in of the same round, of the time and of the CPU time an operation; and, where valgrind is, the
instructions an operation.
"""
import json, os, shutil, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from ci.lib import callgrind

PEER = os.path.join(HERE, "peer")
WORKLOADS = ["yield_2", "chan_pingpong", "spawn_join", "mutex_uncontended"]


def build(kind, flags):
    target = os.path.join(PEER, "target", kind)
    env = dict(os.environ, RUSTFLAGS=flags)
    command = ["cargo", "build", "--release", "--quiet", "--target-dir", target]
    subprocess.run(command, cwd=PEER, env=env, check=True)
    return os.path.join(target, "release", "peer-gosched")


def run(program, workload, n=None):
    command = [program, workload, "--procs", "1"] + (["--n", str(n)] if n else [])
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found["ns_per_op"], found["extra"].get("cpu_ns_per_op") or found["ns_per_op"], found["n"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    workloads = sys.argv[2:] or WORKLOADS
    with_, without = build("probes", ""), build("no-probes", "--cfg gosched_no_probes")
    has_valgrind = shutil.which("valgrind")
    print(f"{'':18} {'in/out':>7} {'in/in':>7} {'CPU in/out':>11} {'CPU in/in':>10}   instructions in, out")
    for workload in workloads:
        # About as long each: half a second.
        took, _, n = run(with_, workload)
        n = max(1000, int(5e8 / took))
        ratios = []
        for turn in range(rounds):
            order = [with_, without, with_]
            times = [run(program, workload, n) for program in (order if turn % 2 else order[::-1])]
            times = times if turn % 2 else times[::-1]
            again = [times[0][i] / times[2][i] for i in (0, 1)]
            both = [(times[0][i] + times[2][i]) / 2 / times[1][i] for i in (0, 1)]
            ratios.append([both[0], again[0], both[1], again[1]])
        middle = [statistics.median(column) for column in zip(*ratios)]
        counted = ""
        if has_valgrind:
            counted = "   %.0f, %.0f" % tuple(callgrind.per_operation(p, workload) for p in (with_, without))
        print(f"{workload:18} {middle[0]:7.3f} {middle[1]:7.3f} {middle[2]:11.3f} {middle[3]:10.3f}{counted}", flush=True)


main()
