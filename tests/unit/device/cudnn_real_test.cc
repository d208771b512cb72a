// What can be asked of the real cuDNN without a GPU: whether it has an engine for gaccd's attention
// on a GPU that is only described. That covers the graph, its strides and masks, the heuristics and
// the library's own checks; compiling and running need a GPU (tests/gpu).
#include <cudnn_version.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cudnn_graph.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

struct Gpu {
  const char* name;
  int compute_capability, multiprocessors, shared_bytes;
};
constexpr Gpu kGpus[] = {
    {"A100", 80, 108, 166'912}, {"H100", 90, 132, 232'448}, {"B200", 100, 148, 232'448}};

// As cuDNN describes a GPU; what is the same on all of these is an H100's.
std::string Description(const Gpu& gpu) {
  return StrCat(
      R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)",
      R"("regsPerBlock":65536,"multiProcessorCount":)", gpu.multiprocessors,
      R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,)", R"("maxSharedMemoryPerBlockOptin":)",
      gpu.shared_bytes, R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)",
      R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)",
      R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)",
      R"("totalGlobalMem":84000000000,"smClockRateKHz":1980000,)",
      R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,)", R"("deviceVer":)",
      10 * gpu.compute_capability, R"(,"driverVer":13000,"deviceName":")", gpu.name, R"("})");
}

class RealCudnn : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudnnApi*> loaded = LoadCudnn();
    if (!loaded.ok()) GTEST_SKIP() << loaded.status().message();
    api_ = *loaded;
    // cuDNN loads the driver to see whether a kernel could be compiled. Without one, that of the
    // toolkit for linking works: it has the same name, and answers every call by an error.
    if (SharedLibrary::Open("libcuda.so.1").ok()) return;
    const Status stub = SharedLibrary::Open(GACCD_CUDA_STUB).status();
    if (!stub.ok()) GTEST_SKIP() << "neither a driver nor the toolkit's: " << stub.message();
  }

  template <typename Spec>
  Status Ask(const Gpu& gpu, const Spec& spec) {
    const CudnnTarget target{.handle = nullptr,
                             .device = Description(gpu),
                             .compute_capability = gpu.compute_capability};
    return CudnnGraph::Create(*api_, target, spec).status();
  }

  const CudnnApi* api_ = nullptr;
};

SdpaSpec MakeSdpaSpec(std::int64_t length, std::int64_t width, bool packed = true) {
  return {.sequences = 3,
          .heads = 2,
          .length = length,
          .width = width,
          .step = (packed ? 3 : 1) * 2 * width};
}

TEST_F(RealCudnn, HasAnEngineForEveryAttention) {
  for (const Gpu& gpu : kGpus) {
    for (unsigned bits = 0; bits < 64; ++bits) {
      const auto bit = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
      SdpaSpec spec = MakeSdpaSpec(bit(0) ? 77 : 1024, bit(0) ? 8 : 64, /*packed=*/!bit(0));
      spec.causal = bit(1);
      spec.lengths = bit(2);
      spec.backward = bit(3);
      spec.dtype = bit(4) ? DType::kFP16 : DType::kBF16;
      spec.deterministic = bit(5);
      EXPECT_OK(Ask(gpu, spec)) << gpu.name;
    }
  }
}

ConvSize Convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t kernel,
                     std::int64_t stride, std::int64_t groups = 1, std::int64_t dilation = 1) {
  const std::int64_t padding = dilation * (kernel - 1) / 2;
  const std::int64_t result = (side + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  return {.images = 6,
          .in = in,
          .out = out,
          .groups = groups,
          .image = {side, side},
          .result = {result, result},
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .padding = {padding, padding},
          .dilation = {dilation, dilation}};
}

// Of ResNets, ConvNeXt, EfficientNet, and of odd numbers of channels; but for gradients of the
// weights of groups and of such channels.
TEST_F(RealCudnn, HasAnEngineForConvolutions) {
  for (const Gpu& gpu : kGpus) {
    for (const ConvSize& size :
         {Convolution(3, 64, 224, 7, 2), Convolution(64, 64, 56, 3, 1),
          Convolution(64, 256, 56, 1, 1), Convolution(256, 512, 56, 1, 2),
          Convolution(128, 128, 56, 3, 2), Convolution(96, 96, 56, 7, 1, 96),
          Convolution(24, 24, 112, 5, 2, 24), Convolution(32, 32, 14, 3, 1, 4),
          Convolution(5, 7, 9, 3, 1), Convolution(16, 16, 20, 3, 1, 1, 2),
          Convolution(1, 8, 28, 3, 1), Convolution(8, 64, 224, 7, 2)}) {
      for (const auto pass :
           {ConvPass::kForward, ConvPass::kInputGradient, ConvPass::kWeightGradient}) {
        for (const DType dtype : {DType::kBF16, DType::kFP16}) {
          if (dtype == DType::kFP16 && gpu.compute_capability != 90)
            continue;  // as bf16; takes seconds
          const bool by_weight = pass == ConvPass::kWeightGradient;
          if (by_weight && (size.groups > 1 || size.in % kChannelsTogether != 0)) continue;
          EXPECT_OK(Ask(gpu, ConvSpec{dtype, pass, /*deterministic=*/true, size})) << gpu.name;
        }
      }
    }
  }
}

TEST_F(RealCudnn, ReportsWhyItHasNone) {
  EXPECT_THAT(Ask(kGpus[1], MakeSdpaSpec(64, 20)),
              IsError(ErrorKind::kUnavailable, "hidden_dim should be multiple of 8"));
  SdpaSpec one_row = MakeSdpaSpec(1, 64);
  one_row.backward = true;
  EXPECT_THAT(Ask(kGpus[1], one_row),
              IsError(ErrorKind::kUnavailable, "gradient of attention of 3"));
  EXPECT_THAT(Ask({"unknown", 0, 0, 0}, MakeSdpaSpec(64, 64)), HasKind(ErrorKind::kUnavailable));
}

TEST(CudnnVersion, RefusesOlderOrOtherMajorNamingBothVersions) {
  EXPECT_TRUE(CheckCudnnVersion(CUDNN_VERSION).ok());
  EXPECT_TRUE(CheckCudnnVersion(kOldestCudnn).ok());
  EXPECT_TRUE(CheckCudnnVersion(92500).ok());
  EXPECT_THAT(CheckCudnnVersion(91700),
              IsError(ErrorKind::kUnavailable, "cuDNN: expected 9.18.0 or newer, found 9.17.0"));
  EXPECT_THAT(CheckCudnnVersion(100100),
              IsError(ErrorKind::kUnavailable, "cuDNN: expected 9.x, found 10.1.0"));
}

// NVRTC of CUDA 990, which no machine has: libc by its name.
TEST(Nvrtc, IsFoundByNameAndNextToCudnn) {
  Dl_info libc{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "qsort"), &libc), 0);
  for (const char* folder : {"cudnn", "cuda_nvrtc", "cu990"}) {
    const TempFolder root;
    std::filesystem::create_directories(root.Path("cudnn/lib"));
    EXPECT_THAT(CheckNvrtc(990'000, root.Path("cudnn/lib")),
                IsError(ErrorKind::kUnavailable, "cannot load libnvrtc.so.990"));
    const std::filesystem::path library = root.Path(StrCat(folder, "/lib/libnvrtc.so.990"));
    std::filesystem::create_directories(library.parent_path());
    std::filesystem::create_symlink(std::filesystem::canonical(libc.dli_fname), library);
    EXPECT_TRUE(CheckNvrtc(990'000, root.Path("cudnn/lib")).ok()) << folder;
  }
}

TEST(SdpaSpec, RefusesContradictorySpec) {
  EXPECT_TRUE(Check(MakeSdpaSpec(8, 8)).ok());
  EXPECT_TRUE(Check(MakeSdpaSpec(8, 8, false)).ok());
  SdpaSpec spec = MakeSdpaSpec(8, 8);
  spec.step = 40;
  EXPECT_THAT(Check(spec), IsError(ErrorKind::kInternal, "distance of 16 or 48, found 40"));
  EXPECT_THAT(Check(MakeSdpaSpec(0, 8)), HasKind(ErrorKind::kInternal));
  spec = MakeSdpaSpec(8, 8);
  spec.dtype = DType::kF32;
  EXPECT_THAT(Check(spec), IsError(ErrorKind::kInternal, "bf16 or fp16"));
}

}  // namespace
}  // namespace gaccd
