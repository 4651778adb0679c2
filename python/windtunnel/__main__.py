# SPDX-License-Identifier: GPL-2.0-or-later
"""`python -m windtunnel ARGUMENT...` is `windtunnel ARGUMENT...`."""

import os
import sys

from ._error import Error
from ._find import find_program

try:
    program = find_program()
except Error as error:
    sys.exit(str(error))
os.execv(program, ["windtunnel", *sys.argv[1:]])
