#include "daemon/device/cuda/cuda_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/cuda.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class CudaGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    standin::Reset();
    stream_ = CudaStream::Create().value();
    memory_ = DeviceBuffer::Allocate(256, "test").value();
    host_ = PinnedBuffer::Allocate(256, "test").value();
  }
  void TearDown() override {
    memory_ = {};
    host_ = {};
    stream_ = {};
    standin::Reset();  // stops the test when something is left
  }
  Status Fill(int value) {
    return CudaStatus(cudaMemsetAsync(memory_.data(), value, 256, stream_.get()), "fill");
  }
  Status CopyBack() {
    return CudaStatus(
        cudaMemcpyAsync(host_.data(), memory_.data(), 256, cudaMemcpyDeviceToHost, stream_.get()),
        "copy");
  }
  int First() {
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    return host_.as<unsigned char>()[0];
  }

  CudaStream stream_;
  DeviceBuffer memory_;
  PinnedBuffer host_;
};

TEST_F(CudaGraphTest, CapturesWithoutRunningAndReplays) {
  auto graph = ValueOrThrow(CudaGraph::Capture(stream_.get(), [&] {
    GACCD_RETURN_IF_ERROR(Fill(7));
    return CopyBack();
  }));
  EXPECT_EQ(graph.nodes(), 2U);
  EXPECT_EQ(First(), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Fill(9).ok());
    ASSERT_TRUE(graph.Launch(stream_.get()).ok());
    EXPECT_EQ(First(), 7);
  }
}

TEST_F(CudaGraphTest, MoveKeepsGraph) {
  CudaGraph kept;
  {
    kept = ValueOrThrow(CudaGraph::Capture(stream_.get(), [&] {
      GACCD_RETURN_IF_ERROR(Fill(7));
      return CopyBack();
    }));
  }
  CudaGraph again(std::move(kept));
  EXPECT_EQ(kept.nodes(), 0U);  // NOLINT(bugprone-use-after-move)
  ASSERT_TRUE(again.Launch(stream_.get()).ok());
  EXPECT_EQ(First(), 7);
}

TEST_F(CudaGraphTest, ReturnsErrorOfBodyAndKeepsStreamUsable) {
  const Result<CudaGraph> graph = CudaGraph::Capture(stream_.get(), [&] {
    GACCD_RETURN_IF_ERROR(Fill(7));
    return Status(ErrorKind::kConfig, "no kernel for this");
  });
  EXPECT_THAT(graph, IsError(ErrorKind::kConfig, "no kernel for this"));
  ASSERT_TRUE(Fill(5).ok());
  ASSERT_TRUE(CopyBack().ok());
  EXPECT_EQ(First(), 5);
}

TEST_F(CudaGraphTest, ThrowingBodyEndsCapture) {
  EXPECT_THROW((void)CudaGraph::Capture(stream_.get(), []() -> Status { throw std::bad_alloc(); }),
               std::bad_alloc);
  ASSERT_TRUE(Fill(5).ok());
  ASSERT_TRUE(CopyBack().ok());
  EXPECT_EQ(First(), 5);
}

TEST_F(CudaGraphTest, ReportsEveryFailedCallWithoutLeaks) {
  for (const char* call : {"cudaStreamBeginCapture", "cudaMemsetAsync", "cudaStreamEndCapture",
                           "cudaGraphGetNodes", "cudaGraphInstantiate", "cudaGraphUpload"}) {
    standin::FailCall(call, 1, cudaErrorUnknown);
    const Result<CudaGraph> graph = CudaGraph::Capture(stream_.get(), [&] { return Fill(7); });
    EXPECT_THAT(graph, IsError(ErrorKind::kUnavailable, "cudaErrorUnknown")) << call;
    // A capture whose end failed would still be open.
    if (std::string_view(call) == "cudaStreamEndCapture") {
      cudaGraph_t dropped = nullptr;
      if (cudaStreamEndCapture(stream_.get(), &dropped) == cudaSuccess) {
        EXPECT_EQ(cudaGraphDestroy(dropped), cudaSuccess);
      }
    }
    ASSERT_TRUE(CudaGraph::Capture(stream_.get(), [&] { return Fill(7); }).ok()) << call;
  }
}

TEST_F(CudaGraphTest, ReportsFailedLaunch) {
  const auto graph = ValueOrThrow(CudaGraph::Capture(stream_.get(), [&] { return Fill(7); }));
  standin::FailCall("cudaGraphLaunch", 1, cudaErrorUnknown);
  EXPECT_THAT(graph.Launch(stream_.get()), HasMessage(HasSubstr("launch a CUDA graph")));
}

// A second stream takes part when it waits for the first one and is waited for.
TEST_F(CudaGraphTest, StreamsThatForkAndJoin) {
  CudaStream side = CudaStream::Create().value();
  const CudaEvent fork = CudaEvent::Create().value();
  const CudaEvent join = CudaEvent::Create().value();
  const auto body = [&](bool joined) {
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(fork.get(), stream_.get()), "fork"));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(side.get(), fork.get(), 0), "wait"));
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(memory_.data(), 3, 256, side.get()), "fill on the side"));
    if (!joined) return Status::Ok();
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(join.get(), side.get()), "join"));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(stream_.get(), join.get(), 0), "wait"));
    return CopyBack();
  };
  {
    const auto graph = ValueOrThrow(CudaGraph::Capture(stream_.get(), [&] { return body(true); }));
    ASSERT_TRUE(graph.Launch(stream_.get()).ok());
    EXPECT_EQ(First(), 3);
    const Result<CudaGraph> unjoined =
        CudaGraph::Capture(stream_.get(), [&] { return body(false); });
    EXPECT_THAT(unjoined, HasMessage(HasSubstr("record a CUDA graph")));
  }
}

}  // namespace
}  // namespace gaccd
