#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "collectives/base/strings.h"
#include "collectives/comm/checks.h"
#include "collectives/comm/communicator.h"
#include "collectives/comm/host_memory.h"

namespace gaccd {
namespace {

void Copy(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() > 0 && in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator() {
    topology_.hosts = {HostName()};
    topology_.node_of = {0};
  }

  [[nodiscard]] std::string_view name() const override { return "single"; }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] const Topology& topology() const override { return topology_; }

  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    return AllocateHostMemory(bytes);
  }

  Status AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle /*stream*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    GACCD_RETURN_IF_ERROR(CheckAllReduce(in, out));
    Copy(in, out);
    return Status::Ok();
  }

  Status AllReduceMax(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    return AllReduceSum(in, out, stream);  // of one rank
  }

  Status SendReceive(ConstBuffer in, int to, MutableBuffer out, int from,
                     StreamHandle /*stream*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    GACCD_RETURN_IF_ERROR(CheckSendReceive(in, to, out, from, 1));
    const Route route = RouteOf(in, to, out, from);
    GACCD_RETURN_IF_ERROR(CheckRoutes({&route, 1}));
    if (to == 0) Copy(in, out);
    return Status::Ok();
  }

  Status AllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                   StreamHandle /*stream*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    GACCD_RETURN_IF_ERROR(CheckAllGather(in, counts, out, 0, 1));
    Copy(in, out);
    return Status::Ok();
  }

  Status ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                       StreamHandle /*stream*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    GACCD_RETURN_IF_ERROR(CheckReduceScatter(in, counts, out, 0, 1));
    Copy(in, out);
    return Status::Ok();
  }

  Status Broadcast(MutableBuffer buffer, int root, StreamHandle /*stream*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    return CheckBroadcast(buffer, root, 1);
  }

  Status Barrier() override { return aborted_; }

  Result<std::unique_ptr<Communicator>> Split(int color, int /*key*/) override {
    GACCD_RETURN_IF_ERROR(aborted_);
    if (color < 0) return std::unique_ptr<Communicator>();
    return MakeSingle();
  }

  void Abort(int exit_code) noexcept override {
    aborted_ =
        Status(ErrorKind::kUnavailable, StrCat("rank 0 has aborted with exit code ", exit_code));
  }

 private:
  Topology topology_;
  Status aborted_;
};

}  // namespace

std::unique_ptr<Communicator> MakeSingle() { return std::make_unique<SingleCommunicator>(); }

}  // namespace gaccd
