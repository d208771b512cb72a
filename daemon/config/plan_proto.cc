#include "daemon/config/plan_proto.h"

#include <google/protobuf/text_format.h>

#include <span>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/plan/speeds.h"
#include "proto/plan.pb.h"

namespace gaccd {

void FillPlanProto(const Plan& plan, proto::Plan& message) {
  const PlanRequest& request = plan.request();
  message.set_mode(std::string(Name(request.rounding)));
  message.set_nodes(request.nodes);
  message.set_gpus_per_node(request.gpus_per_node);
  message.set_world(plan.world());
  message.set_micro_batch(request.micro_batch);
  message.set_base_batch(plan.base_batch());
  message.set_target_batch(request.target_batch);
  message.set_effective_batch(plan.effective_batch());
  message.set_ratio(plan.ratio());
  message.set_error_ratio(plan.error_ratio());
  message.set_accum_steps(plan.accum_steps());
  message.set_ranks_hi(plan.ranks_hi());
  message.set_ranks_hi_samples(plan.ranks_hi_samples());
  message.set_ranks_lo(plan.ranks_lo());
  message.set_ranks_lo_samples(plan.ranks_lo_samples());
  message.set_balance_ratio(plan.balance_ratio());
  message.set_lr_factor(plan.lr_factor());
  if (plan.memory()) {
    message.set_memory_bytes(plan.memory()->bytes);
    message.set_memory_limit_bytes(plan.memory()->limit);
  }
  if (request.recompute != Recompute::kNone) {
    message.set_recompute(std::string(Name(request.recompute)));
  }
  if (plan.stages() > 1) message.set_stages(plan.stages());
  if (plan.any_split()) message.set_bits(std::string(Name(request.bits)));
  if (!plan.uneven()) return;
  message.set_speeds(SpeedsText(request.speeds));
  message.set_slowest_time(plan.slowest_time());
  message.set_idle_ratio(1 - plan.balance_ratio());
  message.set_gain_ratio(plan.equal_loads_time() / plan.slowest_time());
}

std::string PlanJson(const Plan& plan) {
  proto::Plan message;
  FillPlanProto(plan, message);
  return FlatJson(message);
}

Result<std::string> RanksJson(const Plan& plan) {
  if (plan.accum_steps() > kMaxRankMicroBatches / plan.world()) {
    return Status(ErrorKind::kUsage,
                  StrCat("--ranks prints at most ", kMaxRankMicroBatches, " micro-batches, found ",
                         plan.world(), " ranks with ", plan.accum_steps()));
  }
  std::string text;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(plan.accum_steps()));
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    for (std::size_t step = 0; step < sizes.size(); ++step) {
      sizes[step] = plan.MicroBatch(rank, static_cast<std::int64_t>(step));
    }
    JsonObject line;
    line("rank", rank);
    line("first", plan.Offset(rank));
    line("samples", plan.Load(rank));
    line("micro_batches", std::span<const std::int64_t>(sizes));
    text += line.FinishLine();
  }
  return text;
}

std::string PlanTxtpb(const Plan& plan) {
  proto::Plan message;
  FillPlanProto(plan, message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return "# proto-file: proto/plan.proto\n# proto-message: gaccd.proto.Plan\n\n" + text;
}

}  // namespace gaccd
