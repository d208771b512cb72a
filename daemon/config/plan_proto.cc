#include "daemon/config/plan_proto.h"

#include <google/protobuf/text_format.h>

#include "daemon/config/flat_json.h"
#include "proto/plan.pb.h"

namespace gaccd {

void FillPlanProto(const Plan& plan, proto::Plan& message) {
  const PlanRequest& asked = plan.request();
  message.set_mode(std::string(Name(asked.rounding)));
  message.set_nodes(asked.nodes);
  message.set_gpus_per_node(asked.gpus_per_node);
  message.set_world(plan.world());
  message.set_micro_batch(asked.micro_batch);
  message.set_base_batch(plan.base_batch());
  message.set_target_batch(asked.target_batch);
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
}

std::string PlanJson(const Plan& plan) {
  proto::Plan message;
  FillPlanProto(plan, message);
  return FlatJson(message);
}

std::string PlanTxtpb(const Plan& plan) {
  proto::Plan message;
  FillPlanProto(plan, message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return "# proto-file: proto/plan.proto\n# proto-message: gaccd.proto.Plan\n\n" + text;
}

}  // namespace gaccd
