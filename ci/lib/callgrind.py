"""Counts instructions of the programs in benches/peer under callgrind: a count does not depend on what else the machine does."""
import glob
import os
import re
import subprocess
import tempfile

# The cost of an operation is the difference between these numbers of operations: what starting takes is in both.
FEW, MANY = 20_000, 60_000

# Threads with a smaller share of a run's instructions only start the runtime or watch it.
SMALLEST_SHARE = 0.2

# valgrind knows no FSGSBASE instructions, so the thread pointer is written by a system call, which callgrind does not look
# into. Goroutines are not preempted: a program is fifty times slower here and would have fifty times as many time slices.
ENVIRONMENT = {"GOSCHED_FSGSBASE": "off", "GODEBUG": "asyncpreemptoff=1"}


def count(program, workload, operations):
    """The instructions of the threads that run goroutines, on one P."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "counts")
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}"]
        command += [program, workload, "--procs", "1", "--n", str(operations)]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        threads = []
        for path in glob.glob(out + "-*"):
            with open(path) as file:
                threads.append(int(re.search(r"^totals: (\d+)", file.read(), re.M)[1]))
    return sum(total for total in threads if total > SMALLEST_SHARE * sum(threads))


def per_operation(program, workload):
    return (count(program, workload, MANY) - count(program, workload, FEW)) / (MANY - FEW)
