#include "daemon/device/cuda/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

LibraryVersions Library(const char* name, int compiled, int loaded) {
  return {.name = name, .compiled = DecodeVersion(compiled), .loaded = DecodeVersion(loaded)};
}

TEST(Versions, DecodesLibraryVersions) {
  EXPECT_EQ(ToText(CudaVersion(13000)), "13.0.0");
  EXPECT_EQ(ToText(CudaVersion(12080)), "12.8.0");
  EXPECT_EQ(ToText(DecodeVersion(130100)), "13.1.0");
  EXPECT_EQ(ToText(DecodeVersion(91900)), "9.19.0");
  EXPECT_EQ(ToText(DecodeVersion(22809)), "2.28.9");
}

TEST(Versions, RefusesTooOldNamingBothVersions) {
  std::vector<LibraryVersions> libraries = {
      Library("cuBLASLt", 130100, 129105), Library("cuDNN", 91900, 91900),
      Library("NCCL", 22809, 22605), Library("other NCCL", 22809, 22703)};
  libraries[2].oldest = libraries[3].oldest = DecodeVersion(22700);
  EXPECT_THAT(CheckNotOlder(libraries),
              IsError(ErrorKind::kUnavailable, "cuBLASLt: expected 13.0.0 or newer, found 12.91.5",
                      "NCCL: expected 2.27.0 or newer, found 2.26.5", Not(HasSubstr("cuDNN")),
                      Not(HasSubstr("other"))));
}

TEST(Versions, AcceptsNewerAndMissing) {
  std::vector<LibraryVersions> libraries = {Library("cuDNN", 91900, 92100),
                                            Library("cuBLASLt", 130100, 140000)};
  libraries.push_back(
      {.name = "NCCL", .compiled = DecodeVersion(22809), .detail = "cannot load libnccl.so.2"});
  EXPECT_TRUE(CheckNotOlder(libraries).ok());
  EXPECT_EQ(ToText(libraries.back()),
            "NCCL not found (compiled with 2.28.9): cannot load libnccl.so.2");
}

TEST(Versions, ComparesMajorVersionOnly) {
  LibraryVersions driver{
      .name = "CUDA driver", .compiled = CudaVersion(13010), .loaded = CudaVersion(13000)};
  EXPECT_TRUE(CheckNotOlder({&driver, 1}).ok());
  driver.loaded = CudaVersion(12090);
  EXPECT_FALSE(CheckNotOlder({&driver, 1}).ok());
}

#if defined(GACCD_CUDA)
// On this machine: every library has either a version or the reason why not.
TEST(Versions, DescribesThisMachine) {
  const std::vector<LibraryVersions> libraries = CudaLibraries();
  ASSERT_EQ(libraries.size(), 4U);
  EXPECT_EQ(libraries[0].name, "CUDA runtime");
  EXPECT_EQ(libraries[3].name, "cuDNN");
  for (const LibraryVersions& library : libraries) {
    EXPECT_GT(library.compiled.major, 0) << library.name;
    EXPECT_TRUE(library.loaded.has_value() || !library.detail.empty()) << library.name;
  }
}
#endif

}  // namespace
}  // namespace gaccd
