// Messages in device memory over the stand-ins of the GPU and of NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/comm/chain_links.h"
#include "tests/ranks/device_messages.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

class NcclMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override { ResetGpus(4); }
  void TearDown() override { ResetGpus(1); }  // stops the process where something is left
};

MutableBuffer Floats(const DeviceBuffer& memory, std::size_t first, std::size_t count) {
  return {memory.as<float>() + first, count, DType::kF32, MemoryKind::kCuda};
}

// Of the rank that fails first, by rank.
std::vector<Status> RunToTheirErrors(
    int ranks, const std::function<Status(Communicator& comm, const DeviceBuffer& memory)>& body) {
  std::vector<Status> found(static_cast<std::size_t>(ranks));
  NcclRanks options;
  options.nccl.comm.bound = std::chrono::milliseconds(1'000);
  ExpectOk(RunNcclRanks(ranks, options, [&](Communicator& comm, Communicator& over) -> Status {
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(4096, "messages"));
    found[static_cast<std::size_t>(comm.rank())] = body(comm, memory);
    return over.Barrier();
  }));
  return found;
}

Status WaitFor(const CudaStream& stream, Communicator& comm) {
  (void)cudaStreamSynchronize(stream.get());
  return comm.Poll();
}

TEST_F(NcclMessagesTest, BetweenNeighboursInBothDirections) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    EXPECT_OK(RunNcclRanks(ranks, {}, [](Communicator& comm, Communicator&) {
      return CheckDeviceMessages(comm, 5000);
    })) << ranks;
  }
  EXPECT_EQ(standin::CountNccl()["ncclCommAbort"], 0);
}

TEST_F(NcclMessagesTest, InTinyPiecesAndWithDelays) {
  NcclRanks options;
  options.nccl.message_elements = 3;
  standin::SetDelays(2, 50);
  EXPECT_OK(RunNcclRanks(
      3, options, [](Communicator& comm, Communicator&) { return CheckDeviceMessages(comm, 40); }));
  standin::SetDelays(0, 0);
}

// Both send before they receive, on a stream for each: on one communicator they wait for ever, as
// with the real NCCL and messages that its buffers do not hold.
TEST_F(NcclMessagesTest, OppositeOrdersOnOneCommunicatorDeadlock) {
  const auto found =
      RunToTheirErrors(2, [](Communicator& comm, const DeviceBuffer& memory) -> Status {
        GACCD_ASSIGN_OR_RETURN(const CudaStream sends, CudaStream::Create());
        GACCD_ASSIGN_OR_RETURN(const CudaStream receives, CudaStream::Create());
        const int peer = 1 - comm.rank();
        GACCD_RETURN_IF_ERROR(comm.Send(Floats(memory, 0, 8), peer, sends.handle()));
        GACCD_RETURN_IF_ERROR(comm.Receive(Floats(memory, 8, 8), peer, receives.handle()));
        (void)cudaStreamSynchronize(sends.get());
        return WaitFor(receives, comm);
      });
  for (const Status& status : found) {
    EXPECT_THAT(status, IsError(ErrorKind::kUnavailable, "message #1"));
  }
}

TEST_F(NcclMessagesTest, RefusesOtherSize) {
  const auto found =
      RunToTheirErrors(2, [](Communicator& comm, const DeviceBuffer& memory) -> Status {
        GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
        if (comm.rank() == 0) {
          GACCD_RETURN_IF_ERROR(comm.Send(Floats(memory, 0, 8), 1, stream.handle()));
        } else {
          GACCD_RETURN_IF_ERROR(comm.Receive(Floats(memory, 0, 9), 0, stream.handle()));
        }
        return WaitFor(stream, comm);
      });
  for (const Status& status : found) EXPECT_THAT(status, HasKind(ErrorKind::kUnavailable));
}

// The rank that does not send is named, also where others have exchanged more messages.
TEST_F(NcclMessagesTest, NamesRankThatDoesNotSend) {
  const auto found =
      RunToTheirErrors(3, [](Communicator& comm, const DeviceBuffer& memory) -> Status {
        GACCD_ASSIGN_OR_RETURN(const ChainLinks links, MakeChainLinks(comm));
        GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
        if (comm.rank() == 0) {
          GACCD_RETURN_IF_ERROR(links.up_to_after->Send(Floats(memory, 0, 8), 1, stream.handle()));
          return WaitFor(stream, *links.up_to_after);
        }
        if (comm.rank() == 2) return Status::Ok();
        GACCD_RETURN_IF_ERROR(
            links.up_from_before->Receive(Floats(memory, 0, 8), 0, stream.handle()));
        GACCD_RETURN_IF_ERROR(WaitFor(stream, *links.up_from_before));
        GACCD_RETURN_IF_ERROR(
            links.down_from_after->Receive(Floats(memory, 0, 8), 1, stream.handle()));
        return WaitFor(stream, *links.down_from_after);
      });
  EXPECT_OK(found[0]);
  EXPECT_OK(found[2]);
  // The first one has connected them.
  EXPECT_THAT(found[1], IsError(ErrorKind::kUnavailable, "message #2", "did not enter"));
}

// A stage of a pipeline enqueues a receive long before it needs the message: its deadline begins
// when the stream that reads the message has come to it.
TEST_F(NcclMessagesTest, DeadlineOfReceiveBeginsWhenReaderNeedsIt) {
  for (const bool has_reader : {true, false}) {
    const auto found =
        RunToTheirErrors(2, [&](Communicator& comm, const DeviceBuffer& memory) -> Status {
          GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
          GACCD_ASSIGN_OR_RETURN(const CudaStream reader, CudaStream::Create());
          const cudaStream_t busy = comm.rank() == 0 ? stream.get() : reader.get();
          GACCD_RETURN_IF_ERROR(CudaStatus(
              standin::Enqueue(busy, "a long computation",
                               [] { std::this_thread::sleep_for(std::chrono::seconds(2)); }, {}),
              "enqueue"));
          const MutableBuffer message = Floats(memory, 0, 8);
          if (comm.rank() == 0) {
            GACCD_RETURN_IF_ERROR(comm.Send(message, 1, stream.handle()));
          } else {
            if (has_reader) comm.SetReader(reader.handle());
            GACCD_RETURN_IF_ERROR(comm.Receive(message, 0, stream.handle()));
          }
          return WaitFor(stream, comm);
        });
    EXPECT_EQ(found[1].ok(), has_reader) << found[1].message();
  }
}

TEST_F(NcclMessagesTest, RefusesInvalidMessages) {
  const auto found =
      RunToTheirErrors(1, [](Communicator& comm, const DeviceBuffer& memory) -> Status {
        EXPECT_THAT(comm.Send(Floats(memory, 0, 8), 0),
                    IsError(ErrorKind::kInternal, "other rank"));
        return comm.Receive(Floats(memory, 0, 8), 1);
      });
  EXPECT_THAT(found[0], IsError(ErrorKind::kInternal, "the other rank must be"));
}

// Collectives of all ranks follow messages of some.
TEST_F(NcclMessagesTest, BeforeAndAfterCollectives) {
  ExpectOk(RunNcclRanks(3, {}, [](Communicator& comm, Communicator&) -> Status {
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(64, "a sum"));
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    const float mine = static_cast<float>(comm.rank() + 1);
    (void)cudaMemcpy(memory.data(), &mine, sizeof mine, cudaMemcpyHostToDevice);
    const MutableBuffer value = Floats(memory, 0, 1);
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(value, value, stream.handle()));
    if (comm.rank() == 0) GACCD_RETURN_IF_ERROR(comm.Send(value, 2, stream.handle()));
    if (comm.rank() == 2) GACCD_RETURN_IF_ERROR(comm.Receive(value, 0, stream.handle()));
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(value, value, stream.handle()));
    GACCD_RETURN_IF_ERROR(WaitFor(stream, comm));
    float found = 0;
    (void)cudaMemcpy(&found, memory.data(), sizeof found, cudaMemcpyDeviceToHost);
    EXPECT_EQ(found, 18);
    return Status::Ok();
  }));
}

}  // namespace
}  // namespace gaccd::tests
