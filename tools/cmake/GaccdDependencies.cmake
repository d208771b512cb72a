# Every library gaccd uses. The Debian package that contains it is named next to it; tools/dev/packages
# installs the same list. daemon/docs/install.md has the versions, and tools/dev/prefix builds what other
# distributions lack.
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)        # libopenmpi-dev
find_package(Protobuf REQUIRED)                  # libprotobuf-dev protobuf-compiler
find_package(ZLIB REQUIRED)                      # zlib1g-dev
find_package(JPEG REQUIRED)                      # libjpeg-dev
find_package(PNG REQUIRED)                       # libpng-dev
find_package(LibArchive REQUIRED)                # libarchive-dev
find_path(WEBP_INCLUDE_DIR webp/decode.h REQUIRED)  # libwebp-dev; its CMake package is not in Debian's
find_library(WEBP_LIBRARY webp REQUIRED)
mark_as_advanced(WEBP_INCLUDE_DIR WEBP_LIBRARY)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # libssl-dev
find_package(gflags REQUIRED COMPONENTS shared)  # libgflags-dev
find_package(glog REQUIRED)                      # libgoogle-glog-dev
find_package(nlohmann_json REQUIRED)             # nlohmann-json3-dev
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)    # libdnnl-dev; its CMake package wants OpenCL headers
find_library(DNNL_LIBRARY dnnl REQUIRED)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
add_library(gaccd_dnnl INTERFACE)
target_include_directories(gaccd_dnnl SYSTEM INTERFACE "${DNNL_INCLUDE_DIR}")
target_link_libraries(gaccd_dnnl INTERFACE "${DNNL_LIBRARY}" gomp)  # gomp: oneDNN's threads, of g++
if(GACCD_BUILD_TESTS)
  find_package(GTest REQUIRED)                   # libgtest-dev libgmock-dev
endif()
if(GACCD_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)               # libbenchmark-dev
endif()
