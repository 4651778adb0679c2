# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that live by memory they share: Python's multiprocessing, a PostgreSQL server with its processes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scenarios import scenario
from simulate import Simulation

POSTGRESQL = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
# The user of an ordinary account: PostgreSQL does not run as root.
NOBODY = "65534:65534"

MULTIPROCESSING = """
import multiprocessing as mp
from multiprocessing.shared_memory import SharedMemory

def add(lock, value):
    for _ in range(200):
        with lock:
            value.value += 1

def fill(name, index):
    memory = SharedMemory(name=name)
    memory.buf[index] = index + 1
    memory.close()

def double(work, results):
    for item in iter(work.get, None):
        results.put(item * 2)

def run(targets):
    processes = [mp.Process(target=target, args=args) for target, args in targets]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

def square(x):
    return x * x

mp.set_start_method("fork")
lock, value = mp.Lock(), mp.Value("i", 0, lock=False)
run([(add, (lock, value))] * 4)
print(value.value)
memory = SharedMemory(create=True, size=16)
run([(fill, (memory.name, index)) for index in range(4)])
print(bytes(memory.buf[:5]))
memory.close()
memory.unlink()
work, results = mp.Queue(), mp.Queue()
for item in [*range(5), None]:
    work.put(item)
run([(double, (work, results))])
print(sorted(results.get() for _ in range(5)))
with mp.Pool(3) as pool:
    print(pool.map(square, range(10)))
"""


def test_python_processes_share_locks_queues_and_memory(run: Callable[..., Simulation]) -> None:
    node = {
        "memory": "256MiB",
        "files": {"/opt/share.py": {"content": MULTIPROCESSING}},
        "processes": [{"exec": "/usr/bin/python3 /opt/share.py"}],
    }
    result = run(scenario({"n": node}, [], "60s"))
    assert result.stdout("n").splitlines() == [
        "800",
        r"b'\x01\x02\x03\x04\x00'",
        "[0, 2, 4, 6, 8]",
        "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
    ]


@pytest.mark.skipif(not POSTGRESQL, reason="PostgreSQL is not installed")
def test_postgresql_serves_several_clients(run: Callable[..., Simulation]) -> None:
    programs = POSTGRESQL[-1]
    server = f"{programs}/initdb -D /srv/db/data --no-sync -A trust && exec {programs}/postgres -D /srv/db/data -k /tmp"
    client = " && ".join(
        [
            f"{programs}/psql -h /tmp -d postgres -Atc 'create table t as select generate_series(1, 1000) a'"
            " -c 'select sum(a) from t'",
            "grep -c . /proc/sysvipc/shm",
            f"{programs}/pgbench -h /tmp -i -q postgres",
            f"{programs}/pgbench -h /tmp -c 3 -t 5 postgres",
        ]
    )
    node = {
        "memory": "512MiB",
        "setup": ["mkdir -m 777 -p /srv/db"],
        "processes": [
            {
                "exec": ["sh", "-c", server],
                "user": NOBODY,
                "start": "1s",
                "stop": "20s",
                "signal": "INT",
                "expect": {"exit": 0},
            },
            {"exec": ["sh", "-c", client], "user": NOBODY, "start": "10s"},
        ],
    }
    result = run(scenario({"n": node}, [], "30s"))
    lines = result.stdout("n", 1).splitlines()
    # The table of segments has its heading and the server's, which says that the data directory is in use.
    assert lines[:3] == ["SELECT 1000", "500500", "2"]
    assert "number of transactions actually processed: 15/15" in lines
