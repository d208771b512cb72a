"""The version of mpirun: that of Open MPI 5 leaves its ranks half a second, without a setting."""

import re
import subprocess

MAJOR = int(re.search(r"\(Open(?: MPI|RTE)\) (\d+)\.", subprocess.run(
    ["mpirun", "--version"], text=True, check=True, stdout=subprocess.PIPE).stdout)[1])
