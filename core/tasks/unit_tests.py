"""Code that must pass tests, run in a process of its own with limits. No jail: run it where nothing is to be lost.

The process starts without the user's environment and packages' start-up files, in an empty folder that is removed; its
processor time, memory, files and processes are limited where the system can do that. A hostile answer may still read
what the user may read; for answers of models that nobody trusts, run all of draftmux in a container.
"""

from __future__ import annotations

import ast
import re
import secrets
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from attrs import frozen

from draftmux.options import option

FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
LIMITS = """
try:
    import resource
    for name, most in (("RLIMIT_CPU", {cpu}), ("RLIMIT_AS", {memory}), ("RLIMIT_FSIZE", 1 << 20), ("RLIMIT_NPROC", 64)):
        if hasattr(resource, name):
            hard = resource.getrlimit(getattr(resource, name))[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(getattr(resource, name), (most, most))
except ImportError:
    pass
"""


@frozen
class UnitTests:
    """Whether the answer's code, in front of the reference's, runs to the end within its limits.

    The answer's last fenced block is its code, or all of it. The reference holds the tests, and what they call.
    """

    timeout: float = option("seconds until a run counts as failed", default=5.0, minimum=0.1)
    memory_mib: int = option("memory of a run", default=1024, minimum=64)

    def formed(self, answer: str) -> bool:
        """Whether its code can be parsed; there must be some."""
        code = code_of(answer)
        try:
            with warnings.catch_warnings(action="ignore"):  # of code that is odd and runs
                return bool(code.strip()) and ast.parse(code) is not None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def solved(self, answer: str, reference: str) -> bool:
        """Of one problem."""
        limits = LIMITS.format(cpu=int(self.timeout) + 1, memory=self.memory_mib << 20)
        mark = secrets.token_hex(16)  # means success; code that only prints cannot know it
        program = f"{limits}\nimport sys as _sys\n_done = _sys.argv.pop()\n{code_of(answer)}\n{reference}\n"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.py"
            path.write_text(program + "\n_sys.__stdout__.write('\\n' + _done)\n", "utf-8", errors="replace")
            try:
                run = subprocess.run(
                    [sys.executable, "-I", "-S", str(path), mark],
                    cwd=folder,
                    env={},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=self.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
        return run.returncode == 0 and run.stdout.decode("utf-8", "replace").endswith(mark)


def code_of(answer: str) -> str:
    """The last fenced block, or all of an answer without one."""
    blocks = FENCED.findall(answer)
    return str(blocks[-1]) if blocks else answer
