"""The bundle of tools/gpu-check: our programs and every shared library that a bare machine may lack.

pack() runs where gaccd is built, unpack() and environment() where the GPU is. The list of tests is
CTest's, label gpu, so that a test is named in one place. Only the standard library is used.

  bin/      our programs, at their paths below the build folder
  lib/      what they and Open MPI link, but for glibc
  lib-cxx/  libstdc++ and its like: used only where the machine's own are older or missing
  mpi/      Open MPI's launcher, plugins and help texts; OPAL_PREFIX says where it is now
  manifest.json
"""
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_MB = 54  # what may be brought along
NAME = "bundle.tar.xz"
PROGRAMS = ["gaccd", "tools/bench/gpu/gpu_bench"]  # besides what the tests name
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nss_\w+|anl|mvec))\.so\.\d+$")
CXX = re.compile(r"^lib(stdc\+\+|gcc_s|gomp)\.so\.\d+$")
# Of these the bundle's own are always used; of all others (libz, ...) the machine's, if it has them,
# because Python, which starts our programs, may load them too.
OURS = re.compile(r"^lib(protobuf|glog|gflags|dnnl|mpi|open-|hwloc|event|pmix)")
# Open MPI's plugins for ranks on one machine; the others want networks, schedulers, Java.
PLUGINS = [
    "allocator_*", "atomic_basic", "bml_r2", "btl_self", "btl_tcp", "btl_vader", "coll_basic",
    "coll_inter", "coll_libnbc", "coll_self", "coll_sm", "coll_sync", "coll_tuned", "errmgr_*",
    "ess_*", "filem_raw", "grpcomm_direct", "iof_*", "mpool_hugepage", "odls_default", "oob_tcp",
    "op_avx", "osc_pt2pt", "osc_rdma", "osc_sm", "patcher_overwrite", "plm_isolated", "plm_rsh",
    "pmix_ext3x", "pmix_isolated", "pml_ob1", "pstat_linux", "rcache_grdma", "reachable_weighted",
    "regx_*", "rmaps_*", "rml_oob", "routed_*", "rtc_hwloc", "schizo_ompi", "schizo_orte", "shmem_*",
    "state_*", "topo_basic"]
# Library -> the function that tells its version, and how it does so.
CUDA_LIBRARIES = {
    "libcublasLt.so.13": ("cublasLtGetVersion", "returned"),
    "libnccl.so.2": ("ncclGetVersion", "written"),
    "libcudnn.so.9": ("cudnnGetVersion", "returned"),
}
NVRTC = "libnvrtc.so.13"
TOOLKITS = ["/usr/local/cuda*/lib64", "/opt/cuda*/lib64"]
OTHER_PYTHONS = ["/opt/*/lib/python3*/site-packages/nvidia/*/lib"]


class BundleError(Exception):
    """The message says what is missing or wrong."""


def output_of(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        raise BundleError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


# ---- where gaccd is built


def closure(files):
    """The shared libraries that these files need, by name, as ldd finds them here."""
    found = {}
    for file in files:
        for line in output_of("ldd", file).splitlines():
            match = re.match(r"\s*(\S+) => (\S+|not found)", line)
            if match and match[2].startswith("not"):
                raise BundleError(f"{file} needs {match[1]}, which is not here")
            if match and not GLIBC.match(match[1]):
                found[match[1]] = match[2]
    return found


def needed_glibc(files):
    """The newest GLIBC_x.y that any of the files asks for."""
    newest = (0, 0)
    for file in files:
        for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)\b", Path(file).read_bytes()):
            newest = max(newest, (int(major), int(minor)))
    return newest


def gpu_tests(build):
    """CTest's tests of label gpu: name, command, timeout, environment; paths made relative."""
    listed = json.loads(output_of("ctest", "--show-only=json-v1", "-L", "^gpu$", cwd=build))

    def movable(word):
        word = re.sub(re.escape(f"{build}/"), "{bundle}/bin/", word)
        word = re.sub(re.escape(f"{ROOT}/"), "{source}/", word)
        return "{python}" if re.match(r"python3?(\.\d+)?$", os.path.basename(word)) else word

    tests = []
    for test in listed["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        tests.append({"name": test["name"],
                      "command": [movable(word) for word in test["command"]],
                      "timeout": properties.get("TIMEOUT", 60),
                      "environment": [movable(e) for e in properties.get("ENVIRONMENT", [])]})
    return tests


def programs_of(tests):
    words = [word for test in tests for word in test["command"] + test["environment"]]
    found = {match for word in words for match in re.findall(r"\{bundle\}/bin/([^=\s]+)", word)}
    return sorted(found | set(PROGRAMS))


def mpi_places():
    places = {}
    for line in output_of("ompi_info", "--path", "all", "--parsable").splitlines():
        match = re.match(r"path:(\w+):(.*)", line)
        if match:
            places[match[1]] = Path(match[2])
    return places


def copy_mpi(stage):
    """Launcher, plugins, help texts. Returns the ELF files among them."""
    places = mpi_places()
    for folder in ("bin", "lib/plugins", "share", "etc"):
        (stage / "mpi" / folder).mkdir(parents=True)
    elves = []
    for name in ("orterun", "orted"):
        elves.append(shutil.copy(os.path.realpath(places["bindir"] / name), stage / "mpi/bin" / name))
    (stage / "mpi/bin/mpirun").symlink_to("orterun")
    for pattern in PLUGINS:
        for file in sorted(places["pkglibdir"].glob(f"mca_{pattern}.so")):
            elves.append(shutil.copy(file, stage / "mpi/lib/plugins"))
    for file in places["pkgdatadir"].glob("help-*.txt"):
        shutil.copy(file, stage / "mpi/share")
    (stage / "mpi/etc/openmpi-mca-params.conf").write_text("")
    return elves


def versions(build):
    found = {"gaccd": output_of(build / "gaccd", "version").split()[1],
             "commit": output_of("git", "-C", ROOT, "describe", "--always", "--dirty").strip(),
             "built on": platform.platform(), "glibc": platform.libc_ver()[1]}
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found["nvcc"] = re.search(r"release (\S+),", output_of(nvcc, "--version"))[1]
    found["g++"] = output_of("g++", "-dumpfullversion").strip()
    found["Open MPI"] = re.search(r"\d+(\.\d+)+", output_of("mpirun", "--version"))[0]
    return found


def pack(build, folder):
    """Writes folder/bundle.tar.xz from the programs in the build folder; returns its manifest."""
    build, folder = Path(build).resolve(), Path(folder)
    tests = gpu_tests(build)
    if not tests:
        raise BundleError(f"{build} has no test of label gpu: configured without CUDA?")
    programs = programs_of(tests)
    missing = [name for name in programs if not (build / name).is_file()]
    if missing:
        raise BundleError(f"not built: {', '.join(missing)}")
    stage = folder / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    for name in ("bin", "lib", "lib-cxx"):
        (stage / name).mkdir(parents=True)
    elves = []
    for name in programs:
        (stage / "bin" / name).parent.mkdir(parents=True, exist_ok=True)
        elves.append(shutil.copy(build / name, stage / "bin" / name))
    elves += copy_mpi(stage)
    for name, path in sorted(closure(elves).items()):
        place = "lib-cxx" if CXX.match(name) else "lib"
        elves.append(shutil.copy(os.path.realpath(path), stage / place / name))
    for file in elves:
        output_of("strip", "--strip-unneeded", file)
    manifest = {"made": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
                "versions": versions(build), "needs_glibc": list(needed_glibc(elves)),
                "libraries": sorted(file.name for file in stage.glob("lib*/*")), "tests": tests}
    (stage / "manifest.json").write_text(json.dumps(manifest, indent=1))
    packed = folder / NAME
    with open(packed, "wb") as out:
        tar = subprocess.Popen(["tar", "-C", stage, "--owner=0", "--group=0", "-c", "."],
                               stdout=subprocess.PIPE)
        # The programs hold the same kernels: the dictionary reaches from one to the next.
        subprocess.run(["xz", "--lzma2=preset=1,dict=256MiB,nice=64"], stdin=tar.stdout, stdout=out, check=True)
        if tar.wait() != 0:
            raise BundleError("tar failed")
    manifest["unpacked_mb"] = sum(f.stat().st_size for f in stage.rglob("*") if f.is_file()) / 1e6
    manifest["mb"] = packed.stat().st_size / 1e6
    shutil.rmtree(stage)
    if manifest["mb"] > LIMIT_MB:
        raise BundleError(f"{packed} has {manifest['mb']:.1f} MB, at most {LIMIT_MB} may be brought")
    return manifest


# ---- where the GPU is


def unpack(folder, into):
    """Returns the manifest. BundleError when there is no bundle, or glibc is too old for it."""
    packed = Path(folder) / NAME
    if not packed.is_file():
        raise BundleError(f"no {packed}; where gaccd is built, run: tools/gpu-check pack")
    shutil.rmtree(into, ignore_errors=True)
    with tarfile.open(packed, "r:xz") as archive:
        archive.extractall(into)
    manifest = json.loads((Path(into) / "manifest.json").read_text())
    here = platform.libc_ver()[1]
    found = tuple(int(part) for part in re.findall(r"\d+", here)[:2])
    if found and found < tuple(manifest["needs_glibc"]):
        wanted = ".".join(map(str, manifest["needs_glibc"]))
        raise BundleError(f"this machine has glibc {here}, the bundle's programs need {wanted}")
    system = system_libraries()
    for file in (Path(into) / "lib").iterdir():
        if file.name in system and not OURS.match(file.name):
            file.unlink()
    return manifest


def system_libraries():
    """What ldconfig knows: name -> path."""
    for program in ("/sbin/ldconfig", "ldconfig"):
        try:
            lines = output_of(program, "-p").splitlines()
        except (BundleError, OSError):
            continue
        pairs = (re.match(r"\s*(\S+) \(.*x86-64.*\) => (\S+)", line) for line in lines)
        return {match[1]: match[2] for match in pairs if match}
    return {}


def newest_symbol(path, prefix):
    """The largest version after `prefix` among a library's symbols, (3, 4, 32) for example."""
    found = re.findall(prefix.encode() + rb"(\d+(?:\.\d+)+)", Path(path).read_bytes())
    return max((tuple(map(int, v.split(b"."))) for v in found), default=())


def needs_own_cxx(bundle):
    """Whether the machine's libstdc++ and its like are missing or older than the bundle's."""
    system = system_libraries()
    for file in (Path(bundle) / "lib-cxx").iterdir():
        prefix = {"libstdc++.so.6": "GLIBCXX_", "libgcc_s.so.1": "GCC_"}.get(file.name, "GOMP_")
        theirs = system.get(file.name)
        if theirs is None or newest_symbol(theirs, prefix) < newest_symbol(file, prefix):
            return True
    return False


def version_of(path, function, how):
    """Asks a library in a process of its own; 0 when it does not answer."""
    ask = ("import ctypes,sys; f=getattr(ctypes.CDLL(sys.argv[1]),sys.argv[2]); v=ctypes.c_int(0); "
           + ("f(ctypes.byref(v)); print(v.value)" if how == "written"
              else "f.restype=ctypes.c_size_t; print(f())"))
    try:
        return int(output_of(sys.executable, "-c", ask, path, function, timeout=60))
    except (BundleError, ValueError, subprocess.TimeoutExpired):
        return 0


def cuda_folders():
    """Where libraries of CUDA may lie: the loader's path, toolkits, Python's site-packages."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += [os.path.join(os.environ.get(v, ""), "lib64") for v in ("CUDA_HOME", "CUDA_PATH")]
    for pattern in [*TOOLKITS, *(f"{base}/nvidia/*/lib" for base in sys.path), *OTHER_PYTHONS]:
        folders += sorted(glob.glob(pattern))
    return [folder for folder in folders if folder]


def cuda_candidates(name):
    """The files of this name; '*' in it matches anything."""
    files = [file for folder in cuda_folders() for file in sorted(glob.glob(f"{folder}/{name}"))]
    files.append(system_libraries().get(name, ""))
    return list(dict.fromkeys(os.path.realpath(f) for f in files if os.path.isfile(f)))


def find_cuda(into):
    """Links to the newest of each library of CUDA, in a folder: only these and what they load by
    name. Returns name -> (version, path); (0, reason) for one that is not here."""
    into = Path(into)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    found = {}
    for name, (function, how) in CUDA_LIBRARIES.items():
        asked = [(version_of(path, function, how), path) for path in cuda_candidates(name)]
        found[name] = max(asked, default=(0, "not found"))
        if found[name][0] == 0:
            others = cuda_candidates(re.sub(r"\d+$", "*", name))
            found[name] = (0, f"none of these loads: {asked}" if asked else
                           f"not found, but {', '.join(others)}" if others else "not found")
            continue
        (into / name).symlink_to(found[name][1])
        if name.startswith("libcudnn"):
            link_parts_of_cudnn(os.path.dirname(found[name][1]), into)
    return found


def link_parts_of_cudnn(folder, into):
    """What cuDNN loads by name: its parts, and the compiler of kernels with its builtins."""
    parts = [(os.path.basename(part), part) for part in glob.glob(f"{folder}/libcudnn_*.so.9")]
    for compiler in cuda_candidates(NVRTC)[:1]:
        builtins = glob.glob(f"{os.path.dirname(compiler)}/libnvrtc-builtins.so.*")
        parts += [(NVRTC, compiler), *((os.path.basename(file), file) for file in builtins)]
    for name, file in parts:
        (into / name).symlink_to(file)


def environment(bundle, cuda):
    """The variables with which the bundle's programs start on this machine."""
    bundle = Path(bundle).resolve()
    libraries = [bundle / "lib", Path(cuda).resolve()]
    if needs_own_cxx(bundle):
        libraries.append(bundle / "lib-cxx")
    libraries += [Path(p) for p in ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib") if os.path.isdir(p)]
    libraries += filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    mpi = bundle / "mpi"
    env = dict(os.environ)
    env.update({
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "PATH": f"{mpi}/bin:{env.get('PATH', '/usr/bin:/bin')}",
        "OPAL_PREFIX": str(mpi), "OPAL_BINDIR": f"{mpi}/bin", "OPAL_LIBDIR": f"{mpi}/lib",
        "OPAL_PKGLIBDIR": f"{mpi}/lib/plugins", "OPAL_DATADIR": f"{mpi}/share",
        "OPAL_PKGDATADIR": f"{mpi}/share", "OPAL_SYSCONFDIR": f"{mpi}/etc",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm": "isolated",  # one machine: no ssh
        "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none", "HWLOC_PLUGINS_PATH": "/nonexistent",
        "PMIX_MCA_gds": "hash", "PMIX_MCA_mca_base_component_path": "/nonexistent",  # not the machine's own
        "PMIX_MCA_pcompress_base_silence_warning": "1"})
    return env
