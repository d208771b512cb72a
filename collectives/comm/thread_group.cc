#include "collectives/comm/thread_group.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "collectives/comm/wait.h"
#include "collectives/liveness/deadline/deadline.h"

namespace gaccd {
namespace {

// The longest time between two reads of the clock; Deadline treats a gap of more than kPause as a
// suspension.
constexpr std::chrono::milliseconds kLongestSleep = Deadline::kPause / 2;

std::string Describe(const ThreadCall& call, std::uint64_t sequence) {
  std::string text = StrCat(Name(call.operation), " #", sequence);
  switch (call.operation) {
    case Operation::kAllReduce:
      return StrCat(text, " of ", call.agreed_count, " ", Name(call.in.dtype));
    case Operation::kBroadcast:
      return StrCat(text, " of ", call.agreed_count, " ", Name(call.in.dtype), " from rank ",
                    call.root);
    case Operation::kAllGather:
    case Operation::kReduceScatter: {
      text += StrCat(" of ", call.agreed_count, " ", Name(call.in.dtype), " as (");
      constexpr std::size_t kShown = 8;
      for (std::size_t r = 0; r < std::min(kShown, call.counts.size()); ++r) {
        text += StrCat(r == 0 ? "" : ", ", call.counts[r]);
      }
      return text + (call.counts.size() > kShown ? ", ...)" : ")");
    }
    case Operation::kAllocate:
      return StrCat(text, " of ", call.agreed_count, " bytes");
    case Operation::kMessage:
    case Operation::kSplit:
    case Operation::kBarrier:
    case Operation::kNone:
      return text;
  }
  return text;
}

bool Agree(const ThreadCall& a, const ThreadCall& b) {
  return a.operation == b.operation && a.in.dtype == b.in.dtype &&
         a.agreed_count == b.agreed_count && a.root == b.root &&
         std::ranges::equal(a.counts, b.counts);
}

}  // namespace

void ThreadWorld::Fail(Status for_peers, Status result) {
  const std::lock_guard lock(mutex_);
  FailLocked(std::move(for_peers), std::move(result));
}

void ThreadWorld::FailLocked(Status for_peers, Status result) {
  if (failure_.has_value()) return;
  failure_ = Failure{std::move(for_peers), std::move(result)};
  for (ThreadGroup* group : groups_) {
    group->word_.fetch_or(1, std::memory_order_release);
    group->posts_.fetch_add(1, std::memory_order_release);
    group->Wake();
  }
}

void ThreadWorld::Exit(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  // The calls at a failed barrier may have returned, and their memory may be gone.
  if (failure_.has_value()) return;
  for (ThreadGroup* group : groups_) {
    group->posts_.fetch_add(1, std::memory_order_release);
    WakeAll(group->posts_);
  }
  for (const ThreadGroup* group : groups_) {
    if (group->arrived_ == 0) continue;
    if (Status status = group->CheckNobodyLeftLocked(); !status.ok()) FailLocked(status, status);
  }
}

Status ThreadWorld::result() {
  const std::lock_guard lock(mutex_);
  return failure_.has_value() ? failure_->result : Status::Ok();
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks,
                         CommOptions options)
    : world_(std::move(world)),
      world_ranks_(std::move(world_ranks)),
      options_(options),
      has_arrived_(world_ranks_.size(), false),
      calls_(world_ranks_.size()),
      children_(world_ranks_.size()) {
  const std::lock_guard lock(world_->mutex_);
  if (world_->failure_.has_value()) word_ = 1;
  world_->groups_.push_back(this);
}

ThreadGroup::~ThreadGroup() {
  const std::lock_guard lock(world_->mutex_);
  std::erase(world_->groups_, this);
}

void ThreadGroup::Wake() {
  WakeAll(word_);
  WakeAll(posts_);
}

Status ThreadGroup::Post(int from, int to, const ConstBuffer& message) {
  const auto* data = static_cast<const std::byte*>(message.data);
  const std::lock_guard lock(world_->mutex_);
  if (world_->failure_.has_value()) return world_->failure_->for_peers;
  boxes_.resize(world_ranks_.size() * world_ranks_.size());
  Box(from, to).emplace_back(data, data + message.bytes());
  posts_.fetch_add(1, std::memory_order_release);
  WakeAll(posts_);
  return Status::Ok();
}

// The sender may have ended after its last message.
Status ThreadGroup::CheckSender(int from, int to) const {
  if (world_->failure_.has_value()) return world_->failure_->for_peers;
  const int sender = world_ranks_[static_cast<std::size_t>(from)];
  if (!world_->left_[static_cast<std::size_t>(sender)]) return Status::Ok();
  return {ErrorKind::kUnavailable,
          StrCat("rank ", sender, " has ended and cannot send the message for which rank ",
                 world_ranks_[static_cast<std::size_t>(to)], " waits")};
}

Status ThreadGroup::ReceiveMessage(int from, int to, const MutableBuffer& message) {
  Deadline deadline(options_.bound);
  for (;;) {
    const std::uint32_t now = posts_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(world_->mutex_);
      boxes_.resize(world_ranks_.size() * world_ranks_.size());
      auto& box = Box(from, to);
      if (!box.empty()) {
        const std::vector<std::byte> found = std::move(box.front());
        box.pop_front();
        if (found.size() != message.bytes()) {
          return MessageSizeError(world_ranks_[static_cast<std::size_t>(from)], message.bytes(),
                                  found.size(), world_->hosts());
        }
        std::ranges::copy(found, static_cast<std::byte*>(message.data));
        return Status::Ok();
      }
      Status status = CheckSender(from, to);
      if (status.ok() && deadline.PeersAreLate()) {
        status = LateMessageError(world_ranks_[static_cast<std::size_t>(from)], options_.bound,
                                  world_->hosts());
      }
      if (!status.ok()) {
        world_->FailLocked(status, status);
        return status;
      }
    }
    SleepWhile(posts_, now, std::min(deadline.late_at(), Deadline::Clock::now() + kLongestSleep));
  }
}

Status ThreadGroup::BarrierAndCheck(int rank, const ThreadCall& call) {
  std::uint32_t seen = 0;
  bool last = false;
  Entry mine;
  {
    const std::lock_guard lock(world_->mutex_);
    GACCD_RETURN_IF_ERROR(EnterLocked(rank, call));
    mine = {sequence_ + 1, call.operation};
    seen = word_.load(std::memory_order_relaxed);
    last = ArriveLocked(rank);
    if (last) ++sequence_;
  }
  if (!last) return WaitForPeers(seen, mine);
  Wake();
  return Status::Ok();
}

void ThreadGroup::Finish(int rank) {
  std::uint32_t seen = 0;
  bool last = false;
  {
    const std::lock_guard lock(world_->mutex_);
    seen = word_.load(std::memory_order_relaxed);
    last = ArriveLocked(rank);
  }
  if (last) return Wake();
  std::uint32_t now = word_.load(std::memory_order_acquire);
  while (now >> 1 == seen >> 1) {
    SleepWhile(word_, now);
    now = word_.load(std::memory_order_acquire);
  }
}

Status ThreadGroup::EnterLocked(int rank, const ThreadCall& call) {
  if (world_->failure_.has_value()) return world_->failure_->for_peers;
  calls_[static_cast<std::size_t>(rank)] = call;
  if (arrived_ == 0) first_ = rank;
  Status status = CheckCallLocked(rank);
  if (status.ok()) status = CheckNobodyLeftLocked();
  if (!status.ok()) world_->FailLocked(status, status);
  return status;
}

// Returns true if `rank` is the last one: the barrier is complete and the caller wakes the others.
bool ThreadGroup::ArriveLocked(int rank) {
  has_arrived_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ < size()) return false;
  arrived_ = 0;
  has_arrived_.assign(has_arrived_.size(), false);
  word_.fetch_add(2, std::memory_order_release);
  return true;
}

Status ThreadGroup::CheckCallLocked(int rank) const {
  const ThreadCall& first = calls_[static_cast<std::size_t>(first_)];
  const ThreadCall& mine = calls_[static_cast<std::size_t>(rank)];
  if (Agree(first, mine)) return Status::Ok();
  return {ErrorKind::kInternal, StrCat("rank ", world_ranks_[static_cast<std::size_t>(rank)],
                                       " entered ", Describe(mine, sequence_ + 1), " where rank ",
                                       world_ranks_[static_cast<std::size_t>(first_)], " entered ",
                                       Describe(first, sequence_ + 1))};
}

Status ThreadGroup::CheckNobodyLeftLocked() const {
  for (std::size_t i = 0; i < world_ranks_.size(); ++i) {
    const int member = world_ranks_[i];
    if (has_arrived_[i] || !world_->left_[static_cast<std::size_t>(member)]) continue;
    return {ErrorKind::kUnavailable,
            StrCat("rank ", member, " has ended and cannot enter ",
                   Describe(calls_[static_cast<std::size_t>(first_)], sequence_ + 1),
                   ", in which rank ", world_ranks_[static_cast<std::size_t>(first_)],
                   " waits for it")};
  }
  return Status::Ok();
}

Status ThreadGroup::WaitForPeers(std::uint32_t seen, Entry mine) {
  Deadline deadline(options_.bound);
  while (true) {
    const std::uint32_t now = word_.load(std::memory_order_acquire);
    if (now >> 1 != seen >> 1) return Status::Ok();
    if ((now & 1) != 0) {
      const std::lock_guard lock(world_->mutex_);
      return world_->failure_->for_peers;
    }
    if (deadline.PeersAreLate()) return NameMissing(seen, mine, deadline.Elapsed());
    SleepWhile(word_, now, std::min(deadline.late_at(), Deadline::Clock::now() + kLongestSleep));
  }
}

Status ThreadGroup::NameMissing(std::uint32_t seen, Entry mine, std::chrono::nanoseconds waited) {
  const std::lock_guard lock(world_->mutex_);
  // The last rank may have arrived since the check.
  if (word_.load(std::memory_order_relaxed) >> 1 != seen >> 1) return Status::Ok();
  std::vector<MissingRank> missing;
  for (std::size_t i = 0; i < has_arrived_.size(); ++i) {
    if (!has_arrived_[i]) missing.push_back({world_ranks_[i], Absence::kBehind});
  }
  const Status status = MissingError(mine, waited, options_.bound, missing, world_->hosts());
  world_->FailLocked(status, status);
  return world_->failure_->for_peers;
}

}  // namespace gaccd
