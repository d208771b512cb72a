# Spack's recipe of gaccd, for clusters that are not Debian. In the root of the sources:
#   spack repo add slurm/container/spack
#   spack dev-build gaccd@main
#   spack load gaccd
# It has not been tried with Spack: daemon/docs/install.md.
try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
except ImportError:
    pass
from spack.package import *


class Gaccd(CMakePackage):
    """Trains neural networks on a SLURM cluster with an exact effective batch."""

    version("main")

    variant("cuda", default=False, description="Build the GPU side")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("gzip", type="build")

    depends_on("mpi@3:")
    depends_on("protobuf@3.21 +shared")
    depends_on("glog@0.6.0")
    depends_on("gflags@2.2.2 +shared")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("nlohmann-json@3.11:")
    depends_on("openssl@3:")
    depends_on("zlib-api")
    depends_on("libjpeg-turbo@2:")
    depends_on("libpng@1.6:")
    depends_on("libwebp@1:")
    depends_on("libarchive@3.4:")

    depends_on("cuda@13.0:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")

    conflicts("%gcc@:11", msg="gaccd is developed with g++ 12")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("GACCD_WERROR", False),
            self.define("GACCD_BUILD_TESTS", False),
            self.define("GACCD_BUILD_BENCHMARKS", False),
            self.define("GACCD_WITH_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("CMAKE_UNITY_BUILD", True),
        ]
