# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages by others that only some of this one needs, imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from ._error import Error

# Which extra of this package brings what, where it is not `study`.
EXTRAS = {"yaml": "yaml", "dask": "dask", "distributed": "dask", "submitit": "slurm"}
# No extra brings these: who wants them has them.
OTHERS = ("pandas", "pyarrow")


def need(module: str, what: str | None = None) -> Any:
    """Imports a module of a package that may be missing.

    Parameters
    ----------
    module : str
        Its full name, as in ``matplotlib.figure``.
    what : str, optional
        What it is needed for, as in ``plots``: for the error's text.

    Returns
    -------
    module
        The module itself.

    Raises
    ------
    Error
        It is not installed; the hint says how it would be.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        package = module.partition(".")[0]
        extra = EXTRAS.get(package, "study")
        needs = f"{what} need" if what else "this needs"
        hint = f"pip install {package}"
        if package not in OTHERS:
            hint = f"pip install 'windtunnel[{extra}]', or {package} alone"
        raise Error(f"{needs} the package {package}: {missing}", hint=hint) from None
