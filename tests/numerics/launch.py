"""How the tests here start gaccd: alone, or with mpirun as ranks."""
import os
import subprocess

LAUNCHER_VARIABLES = ("SLURM_", "OMPI_", "PMIX_", "PMI_")


def environment():
    """Without what a launcher of this process has set."""
    return {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}


def mpirun(program, ranks):
    return [program, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "-n", ranks]


def run(*command, cwd, code=0):
    """The output; of a program that ends with another code, as expected, the errors."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment(), text=True, capture_output=True,
                          timeout=300, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr
