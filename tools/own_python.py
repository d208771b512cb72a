"""Python environments of the tools: what Debian does not have, from PyPI."""
import re
import subprocess
import sys
from pathlib import Path


def environment(name, packages, python=sys.executable, debian=False):
    """The Python of ~/.cache/gaccd/NAME, which can import the packages ("numpy", "torch==2.9.0"); it is
    made or completed where it cannot. debian: with the packages of the system's own Python, too.
    CalledProcessError: PyPI cannot be reached, or there is no python3-venv."""
    folder = Path.home() / ".cache/gaccd" / name
    own = folder / "bin/python"
    modules = ", ".join(re.match(r"\w+", package)[0] for package in packages)
    works = own.exists() and subprocess.run([own, "-c", f"import {modules}"], check=False,
                                            stderr=subprocess.DEVNULL).returncode == 0
    if not works:
        print(f"Installing {modules} into {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", *(["--system-site-packages"] if debian else []), folder],
                       check=True)
        subprocess.run([own, "-m", "pip", "install", "--quiet", "--retries=1", "--timeout=15",
                        *packages], check=True)
    return own
