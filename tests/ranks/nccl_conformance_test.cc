// The NCCL communicator does what every communicator must do, on device buffers and on host
// buffers, over stand-ins of the GPU and of NCCL.
#include <gtest/gtest.h>

#include <array>

#include "collectives/base/strings.h"
#include "tests/ranks/conformance.h"
#include "tests/ranks/device_copies.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::ConformanceCase;
using tests::ConformanceOptions;
using tests::DeviceCopies;
using tests::NcclRanks;
using tests::ResetGpus;
using tests::RunNcclRanks;

// The whole suite on the device takes seconds with the largest size: it is a plain copy here.
constexpr ConformanceOptions kSmall{.largest = tests::kSanitized ? 3'000U : 20'000U};

Status RunOnDevice(int ranks, const NcclRanks& options, const ConformanceCase& test,
                   const ConformanceOptions& size) {
  return RunNcclRanks(ranks, options, [&](Communicator& comm, Communicator&) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto copies, DeviceCopies::Make(comm));
    return test.run(*copies, size);
  });
}

class NcclConformanceTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  static const ConformanceCase& Case() { return tests::ConformanceCases()[GetParam()]; }
  void SetUp() override { ResetGpus(4); }
  void TearDown() override {
    EXPECT_EQ(standin::LiveNcclComms(), 0);
    EXPECT_EQ(standin::CountNccl()["ncclCommAbort"], 0) << "ended by force";
    ResetGpus(1);  // stops the process when memory, streams or events are left
  }
};

TEST_P(NcclConformanceTest, DeviceBuffersOnOneToFourRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    EXPECT_OK(RunOnDevice(ranks, {}, Case(), kSmall)) << Case().name << ", " << ranks << " ranks";
  }
}

TEST_P(NcclConformanceTest, DeviceBuffersInTinyMessages) {
  NcclRanks options;
  options.nccl.message_elements = 7;
  options.group.comm.segment_elements = 7;
  EXPECT_OK(RunOnDevice(3, options, Case(), {.largest = 300})) << Case().name;
}

TEST_P(NcclConformanceTest, DeviceBuffersOnSeveralNodesAndRoots) {
  NcclRanks options;
  options.group.ranks_per_node = 3;
  options.nccl.ranks_per_root = 2;
  EXPECT_OK(RunOnDevice(4, options, Case(), {.largest = 1000})) << Case().name;
}

INSTANTIATE_TEST_SUITE_P(Cases, NcclConformanceTest,
                         ::testing::Range<std::size_t>(0, tests::ConformanceCases().size()));

TEST(NcclConformance, AllCasesOnOneCommunicator) {
  ResetGpus(4);
  ExpectOk(RunNcclRanks(4, {}, [](Communicator& comm, Communicator&) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto copies, DeviceCopies::Make(comm));
    return tests::RunConformance(*copies, {.largest = 5000});
  }));
}

TEST(NcclConformance, HostBuffersUseHostPath) {
  for (const ConformanceCase& test : tests::ConformanceCases()) {
    // These fill what Allocate() gives, which is not the host's.
    if (test.name == "allocate" || test.name.ends_with("allocated memory")) continue;
    ResetGpus(3);
    EXPECT_OK(RunNcclRanks(
        3, {}, [&](Communicator& comm, Communicator&) { return test.run(comm, kSmall); }))
        << test.name << ": ";
    EXPECT_EQ(standin::CountNccl()["ncclGroupStart"], 0) << test.name;
  }
}

TEST(NcclConformance, SeveralSumsAreOneGroup) {
  ResetGpus(3);
  NcclRanks options;
  options.nccl.message_elements = 2;
  const Status status =
      RunNcclRanks(3, options, [](Communicator& comm, Communicator& over) -> Status {
        GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
        GACCD_ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(64, "buffers"));
        const auto value = static_cast<float>(comm.rank() + 1);
        const std::vector<float> floats(3, value);
        const std::vector<double> doubles(2, 10.0 * static_cast<double>(value));
        auto* const second = memory.as<std::byte>() + 32;
        (void)cudaMemcpy(memory.data(), floats.data(), 12, cudaMemcpyHostToDevice);
        (void)cudaMemcpy(second, doubles.data(), 16, cudaMemcpyHostToDevice);
        GACCD_RETURN_IF_ERROR(comm.AllReduceSums(
            std::array{MutableBuffer{memory.data(), 3, DType::kF32, MemoryKind::kCuda},
                       MutableBuffer{second, 2, DType::kF64, MemoryKind::kCuda},
                       MutableBuffer{nullptr, 0, DType::kI32, MemoryKind::kCuda}},
            stream.handle()));
        GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "wait"));
        std::vector<float> float_sums(3);
        std::vector<double> double_sums(2);
        (void)cudaMemcpy(float_sums.data(), memory.data(), 12, cudaMemcpyDeviceToHost);
        (void)cudaMemcpy(double_sums.data(), second, 16, cudaMemcpyDeviceToHost);
        EXPECT_EQ(float_sums, std::vector<float>(3, 6));
        EXPECT_EQ(double_sums, std::vector<double>(2, 60));
        return over.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(standin::CountNccl()["ncclGroupStart"], 3);
  EXPECT_EQ(standin::CountNccl()["ncclAllReduce"], 3 * 3);
}

TEST(NcclConformance, OneRootOrSeveral) {
  ResetGpus(4);
  const auto nothing = [](Communicator&, Communicator&) { return Status::Ok(); };
  ASSERT_TRUE(RunNcclRanks(4, {}, nothing).ok());
  EXPECT_EQ(standin::CountNccl()["ncclGetUniqueId"], 1);
  EXPECT_EQ(standin::CountNccl()["ncclCommInitRankConfig"], 4);
  NcclRanks two;
  two.nccl.ranks_per_root = 2;
  ASSERT_TRUE(RunNcclRanks(4, two, nothing).ok());
  EXPECT_EQ(standin::CountNccl()["ncclGetUniqueId"], 3);
  EXPECT_EQ(standin::CountNccl()["ncclCommInitRankScalable"], 4);
}

TEST(NcclConformance, UsesWindowsIfNcclSupportsThem) {
  for (const bool offered : {true, false}) {
    ResetGpus(2, {.windows = offered});
    ExpectOk(RunNcclRanks(2, {}, [](Communicator& comm, Communicator&) -> Status {
      GACCD_ASSIGN_OR_RETURN(const auto kept, comm.Allocate(5000));
      GACCD_ASSIGN_OR_RETURN(auto freed, comm.Allocate(100));
      freed.reset();
      GACCD_ASSIGN_OR_RETURN(const auto copies, DeviceCopies::Make(comm));
      return tests::ConformanceCases()[2].run(*copies, {.largest = 1000});
    }));
    auto counts = standin::CountNccl();
    EXPECT_EQ(counts["ncclCommWindowRegister"], 8);
    EXPECT_EQ(counts["ncclCommWindowDeregister"], offered ? 8 : 0);
    EXPECT_EQ(counts["ncclMemFree"], 8);
  }
}

// NCCL picks its kernel by the window, so that a window on some ranks only would be a hang.
TEST(NcclConformance, WindowsOnAllRanksOrOnNone) {
  ResetGpus(3, {.no_window_rank = 1});
  ExpectOk(RunNcclRanks(3, {}, [](Communicator& comm, Communicator& over) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(5000));
    GACCD_RETURN_IF_ERROR(over.Barrier());
    EXPECT_EQ(standin::CountNccl()["ncclCommWindowDeregister"], 2);
    return over.Barrier();
  }));
  // The call is collective: nobody enters it where the memory of one rank would be refused.
  ResetGpus(3, {.unaligned_alloc = 1});
  ExpectOk(RunNcclRanks(3, {}, [](Communicator& comm, Communicator& over) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(5000));
    GACCD_RETURN_IF_ERROR(over.Barrier());
    EXPECT_EQ(standin::CountNccl()["ncclCommWindowRegister"], 0);
    return over.Barrier();
  }));
}

// On one GPU there is nothing to map, and NCCL's windows need ranks of one node.
TEST(NcclConformance, NoWindowsIfRanksShareGpu) {
  ResetGpus(1);
  NcclRanks options;
  options.nccl.gpu_sharing = true;
  EXPECT_OK(RunNcclRanks(
      1, options, [](Communicator& comm, Communicator&) { return comm.Allocate(5000).status(); }));
  EXPECT_EQ(standin::CountNccl()["ncclCommWindowRegister"], 0);
}

// Memory may outlive its communicator.
TEST(NcclConformance, MemoryOutlivesCommunicator) {
  ResetGpus(2);
  ExpectOk(RunThreadRanks(2, {}, [](Communicator& over) -> Status {
    std::unique_ptr<CommMemory> memory;
    GACCD_ASSIGN_OR_RETURN(const auto comm,
                           MakeNccl(over, {.device = over.rank(), .api = StandInNccl()}));
    GACCD_ASSIGN_OR_RETURN(memory, comm->Allocate(100));
    return Status::Ok();
  }));
  ResetGpus(1);
}

}  // namespace
}  // namespace gaccd
