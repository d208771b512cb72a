// Ranks as threads that fail, hang, leave or disagree: everyone hears of it, with names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using std::chrono::milliseconds;

Status SumOne(Communicator& comm) {
  float x = 1;
  return comm.AllReduceSum(View(std::span(&x, 1)), View(std::span(&x, 1)));
}

// What every rank got, and what RunThreadRanks() returned.
struct Outcome {
  std::vector<Status> ranks;
  Status result;
  std::chrono::steady_clock::duration took{};
};

Outcome RunRanks(int ranks, milliseconds bound, const std::function<Status(Communicator&)>& body) {
  Outcome outcome;
  outcome.ranks.resize(static_cast<std::size_t>(ranks));
  ThreadGroupOptions options;
  options.comm.bound = bound;
  const auto start = std::chrono::steady_clock::now();
  outcome.result = RunThreadRanks(ranks, options, [&](Communicator& comm) {
    Status status = body(comm);
    outcome.ranks[static_cast<std::size_t>(comm.rank())] = status;
    return status;
  });
  outcome.took = std::chrono::steady_clock::now() - start;
  return outcome;
}

// Far below the bound of the tests that use it, and far above what a busy machine needs.
constexpr milliseconds kLongBound{60'000};
constexpr milliseconds kAtOnce{15'000};
// Ends by itself, but not before ranks that come have come, on a busy machine either.
constexpr milliseconds kShortBound{2'000};

void ExpectError(const Status& status, ErrorKind kind, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), kind) << status.message();
  EXPECT_THAT(status, HasMessage(HasSubstr(part)));
}

TEST(ThreadsTimeout, NamesAbsentRank) {
  std::atomic<int> gave_up = 0;
  const Outcome outcome = RunRanks(4, kShortBound, [&](Communicator& comm) {
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    if (comm.rank() == 2) {
      while (gave_up < 3) std::this_thread::sleep_for(milliseconds(1));
    }
    Status status = SumOne(comm);
    ++gave_up;
    return status;
  });
  ExpectError(outcome.result, ErrorKind::kUnavailable, "rank 2");
  EXPECT_THAT(outcome.result,
              HasMessage(AllOf(HasSubstr("all-reduce #2"), Not(HasSubstr("rank 0")),
                               Not(HasSubstr("rank 1")), Not(HasSubstr("rank 3")))));
  // The late rank hears it too.
  for (const Status& status : outcome.ranks) ExpectError(status, ErrorKind::kUnavailable, "rank 2");
  EXPECT_GE(outcome.took, kShortBound / 2);
  EXPECT_LT(outcome.took, kAtOnce);
}

TEST(ThreadsTimeout, NamesAllAbsentRanks) {
  std::atomic<int> gave_up = 0;
  const Outcome outcome = RunRanks(5, kShortBound, [&](Communicator& comm) {
    if (comm.rank() == 1 || comm.rank() == 4) {
      while (gave_up < 3) std::this_thread::sleep_for(milliseconds(1));
    }
    Status status = comm.Barrier();
    ++gave_up;
    return status;
  });
  ExpectError(outcome.result, ErrorKind::kUnavailable, "rank 1");
  EXPECT_THAT(outcome.result, HasMessage(HasSubstr("rank 4")));
}

TEST(ThreadsTimeout, AcceptsSlowRankInTime) {
  const Outcome outcome = RunRanks(3, kLongBound, [&](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
    return SumOne(comm);
  });
  EXPECT_TRUE(outcome.result.ok()) << outcome.result.message();
}

TEST(ThreadsFailure, ErrorOfOneRankWakesAllRanks) {
  const Outcome outcome = RunRanks(4, kLongBound, [](Communicator& comm) {
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(20));
      return Status(ErrorKind::kData, "label 12 is out of range");
    }
    return comm.Barrier();
  });
  ExpectError(outcome.result, ErrorKind::kData, "rank 3 failed: label 12 is out of range");
  for (const int r : {0, 1, 2}) {
    ExpectError(outcome.ranks[static_cast<std::size_t>(r)], ErrorKind::kUnavailable,
                "rank 3 failed: label 12 is out of range");
  }
  EXPECT_LT(outcome.took, kAtOnce);
}

// Waiting ranks look up twice a second anyway; a failure must not wait for that. The fastest of
// several runs counts: on a busy machine a single run may take that long.
TEST(ThreadsFailure, WakesImmediately) {
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 30 && fastest > milliseconds(250); ++i) {
    const Outcome outcome = RunRanks(2, kLongBound, [](Communicator& comm) {
      if (comm.rank() == 0) return comm.Barrier();
      std::this_thread::sleep_for(milliseconds(5));
      return Status(ErrorKind::kIo, "disk is full");
    });
    EXPECT_FALSE(outcome.result.ok());
    fastest = std::min(fastest, outcome.took);
  }
  EXPECT_LT(fastest, milliseconds(250));
}

TEST(ThreadsFailure, AbortWakesAllRanks) {
  const Outcome outcome = RunRanks(4, kLongBound, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.Abort(70);
      return Status::Ok();
    }
    return SumOne(comm);
  });
  ExpectError(outcome.result, ErrorKind::kUnavailable, "rank 1 has aborted with exit code 70");
  ExpectError(outcome.ranks[0], ErrorKind::kUnavailable, "rank 1 has aborted with exit code 70");
  EXPECT_LT(outcome.took, kAtOnce);
}

TEST(ThreadsFailure, NamesRankThatEndsEarly) {
  const Outcome outcome = RunRanks(3, kLongBound, [](Communicator& comm) {
    if (comm.rank() == 1) return Status::Ok();
    return SumOne(comm);
  });
  ExpectError(outcome.result, ErrorKind::kUnavailable, "rank 1 has ended");
  EXPECT_LT(outcome.took, kAtOnce);
}

TEST(ThreadsFailure, RanksMayEndAtDifferentTimes) {
  const Outcome outcome = RunRanks(3, kLongBound, [](Communicator& comm) {
    GACCD_RETURN_IF_ERROR(SumOne(comm));
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(20));
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.result.ok()) << outcome.result.message();
}

TEST(ThreadsFailure, ExceptionIsAnError) {
  const Outcome outcome = RunRanks(2, kLongBound, [](Communicator& comm) -> Status {
    if (comm.rank() == 1) throw std::runtime_error("no such thing");
    return comm.Barrier();
  });
  ExpectError(outcome.result, ErrorKind::kInternal, "rank 1 failed: unexpected exception: no such");
}

TEST(ThreadsFailure, ReturnsErrorAfterwards) {
  const Outcome outcome = RunRanks(2, kLongBound, [](Communicator& comm) {
    if (comm.rank() == 1) return Status(ErrorKind::kIo, "disk is full");
    const Status first = comm.Barrier();
    EXPECT_FALSE(first.ok());
    EXPECT_FALSE(SumOne(comm).ok());
    EXPECT_FALSE(comm.Split(0, 0).ok());
    EXPECT_FALSE(comm.Allocate(8).ok());
    return first;
  });
  ExpectError(outcome.result, ErrorKind::kIo, "disk is full");
}

TEST(ThreadsFailure, WakesRanksInOtherGroups) {
  const Outcome outcome = RunRanks(5, kLongBound, [](Communicator& comm) {
    auto half = comm.Split(comm.rank() % 2, 0);
    GACCD_RETURN_IF_ERROR(half.status());
    if (comm.rank() == 4) return Status(ErrorKind::kIo, "disk is full");
    if (comm.rank() == 1) return (*half)->Barrier();  // rank 3 never comes
    return comm.Barrier();
  });
  ExpectError(outcome.result, ErrorKind::kIo, "rank 4 failed: disk is full");
  for (const int r : {0, 1, 2, 3}) {
    ExpectError(outcome.ranks[static_cast<std::size_t>(r)], ErrorKind::kUnavailable, "rank 4");
  }
  EXPECT_LT(outcome.took, kAtOnce);
}

TEST(ThreadsTimeout, NamesWorldRankInGroup) {
  std::atomic<bool> over = false;
  const Outcome outcome = RunRanks(6, kShortBound, [&](Communicator& comm) {
    auto half = comm.Split(comm.rank() % 2, 0);
    GACCD_RETURN_IF_ERROR(half.status());
    if (comm.rank() == 5) {  // rank 2 of its group
      while (!over) std::this_thread::sleep_for(milliseconds(1));
    }
    Status status = (*half)->Barrier();
    if (comm.rank() == 1) over = true;
    return status;
  });
  ExpectError(outcome.result, ErrorKind::kUnavailable, "rank 5");
}

// Every pair of calls that do not belong together is refused, and both are named.
struct Mismatch {
  std::string name;
  std::function<Status(Communicator&)> usual;
  std::function<Status(Communicator&)> odd;
  std::string usual_text;
  std::string odd_text;
};

template <typename T>
std::function<Status(Communicator&)> Sum(std::size_t count) {
  return [count](Communicator& comm) {
    std::vector<T> data(count);
    return comm.AllReduceSum(View(std::span(data)), View(std::span(data)));
  };
}

std::function<Status(Communicator&)> From(int root) {
  return [root](Communicator& comm) {
    float x = 0;
    return comm.Broadcast(View(std::span(&x, 1)), root);
  };
}

std::function<Status(Communicator&)> Gather(std::array<std::int64_t, 3> counts) {
  return [counts](Communicator& comm) {
    const std::vector<float> in(
        static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]));
    std::vector<float> out(static_cast<std::size_t>(counts[0] + counts[1] + counts[2]));
    return comm.AllGather(View(std::span(in)), counts, View(std::span(out)));
  };
}

std::function<Status(Communicator&)> Take(std::size_t bytes) {
  return [bytes](Communicator& comm) { return comm.Allocate(bytes).status(); };
}

TEST(ThreadsMismatch, RefusesAndNamesDifferentCalls) {
  const std::vector<Mismatch> mismatches = {
      {"operation", Sum<float>(4), From(0), "all-reduce #1 of 4 f32",
       "broadcast #1 of 1 f32 from rank 0"},
      {"size", Sum<float>(4), Sum<float>(5), "of 4 f32", "of 5 f32"},
      {"type", Sum<float>(4), Sum<std::int32_t>(4), "of 4 f32", "of 4 i32"},
      {"root", From(0), From(1), "from rank 0", "from rank 1"},
      {"counts", Gather({1, 2, 3}), Gather({2, 2, 2}), "(1, 2, 3)", "(2, 2, 2)"},
      {"bytes", Take(8), Take(16), "of 8 bytes", "of 16 bytes"},
  };
  for (const Mismatch& mismatch : mismatches) {
    const Outcome outcome = RunRanks(3, kLongBound, [&](Communicator& comm) {
      return comm.rank() == 1 ? mismatch.odd(comm) : mismatch.usual(comm);
    });
    SCOPED_TRACE(mismatch.name);
    ExpectError(outcome.result, ErrorKind::kInternal, "rank 1 ");
    EXPECT_THAT(outcome.result,
                HasMessage(AllOf(HasSubstr(mismatch.usual_text), HasSubstr(mismatch.odd_text))));
    for (const Status& status : outcome.ranks) EXPECT_FALSE(status.ok());
    EXPECT_LT(outcome.took, kAtOnce);
  }
}

TEST(ThreadsMismatch, WrongArgumentsOfOneRankFailAllAtOnce) {
  const Outcome outcome = RunRanks(3, kLongBound, [](Communicator& comm) {
    std::vector<float> in(4);
    std::vector<float> out(comm.rank() == 2 ? 3 : 4);
    return comm.AllReduceSum(View(std::span(in)), View(std::span(out)));
  });
  ExpectError(outcome.result, ErrorKind::kInternal,
              "rank 2: all-reduce: 'out' must have 4 elements, found 3");
  ExpectError(outcome.ranks[0], ErrorKind::kUnavailable, "rank 2 failed");
  EXPECT_LT(outcome.took, kAtOnce);
}

TEST(RunThreadRanks, RefusesNoRanks) {
  const Status status = RunThreadRanks(0, {}, [](Communicator&) { return Status::Ok(); });
  ExpectError(status, ErrorKind::kInternal, "found 0");
}

}  // namespace
}  // namespace gaccd
