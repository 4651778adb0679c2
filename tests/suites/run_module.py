# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one module of CPython's own tests: `run_module.py [--use RESOURCE]... MODULE [TEST TO LEAVE OUT]...`

Lines start with `@@`: `@@ start NAME` before a test, `@@ OUTCOME NAME` after it. Names are without the leading `test.`.
"""

import argparse
import os
import signal
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import TextIO

from test import support


class Report(unittest.TestResult):
    """Prints each outcome as soon as it is known, on its own line whatever the test prints."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.out = out
        self.outcome = "ok"

    def say(self, word: str, test: unittest.TestCase) -> None:
        print(f"\n@@ {word} {name(test)}", file=self.out, flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = "ok"
        self.say("start", test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.say(self.outcome, test)

    def note(self, outcome: str, test: unittest.TestCase, details: object) -> None:
        self.outcome = outcome
        text = details if isinstance(details, str) else self._exc_info_to_string(details, test)
        print(text, file=sys.stderr, flush=True)
        if not isinstance(test, unittest.TestCase):  # a class or module that cannot be set up
            self.say(outcome, test)

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self.note("error", test, err)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self.note("failure", test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        if err is not None:
            self.note("failure", test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note("skipped", test, reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:
        self.outcome = "ok"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.note("failure", test, "unexpected success")


def name(test: unittest.TestCase) -> str:
    return test.id().removeprefix("test.")


def flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def without(suite: unittest.TestSuite, left_out: set[str]) -> unittest.TestSuite:
    """The same suite, in its classes and modules as their set-up wants it, without some tests."""
    kept = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(without(test, left_out))
        elif name(test) not in left_out:
            kept.addTest(test)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--use", action="append", default=[], help="a resource that the module may use (test.support)")
    parser.add_argument("module")
    parser.add_argument("left_out", nargs="*")
    options = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.set_inheritable(out.fileno(), False)
    # Who starts a command in the background has it ignore this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Else no test that asks for the network, much time or much memory.
    support.use_resources = options.use
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{options.module}")
        without(suite, set(options.left_out)).run(Report(out))
        os.chdir("/")
    print("\n@@ end", file=out, flush=True)
    out.close()
    # What is left of threads and children is not waited for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


# Processes that multiprocessing spawns import this file, too.
if __name__ == "__main__":
    main()
