#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"

namespace gaccd {
namespace {

Status Copy(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() > 0 && in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
  return Status::Ok();
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
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle /*stream*/) override {
    return Copy(in, out);
  }
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> /*counts*/, MutableBuffer out,
                     StreamHandle /*stream*/) override {
    return Copy(in, out);
  }
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> /*counts*/,
                         MutableBuffer out, StreamHandle /*stream*/) override {
    return Copy(in, out);
  }
  Status DoBroadcast(MutableBuffer /*buffer*/, int /*root*/, StreamHandle /*stream*/) override {
    return Status::Ok();
  }
  [[nodiscard]] Status FirstFailure() const override { return aborted_; }

  Topology topology_;
  Status aborted_;
};

}  // namespace

std::unique_ptr<Communicator> MakeSingle() { return std::make_unique<SingleCommunicator>(); }

}  // namespace gaccd
