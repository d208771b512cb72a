#include "daemon/config/flags_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "daemon/stop/stop_signals.h"
#include "proto/field.pb.h"
#include "proto/flags.pb.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

std::vector<FlagRow> MakeTable() {
  std::vector<FlagRow> table;
  for (const NamedField& leaf : LeafFields(*proto::Flags::descriptor())) {
    table.push_back({Spelled(leaf.path), leaf.field, ""});
  }
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    const std::string& flag = leaf.field->options().GetExtension(proto::is).flag();
    if (!flag.empty()) table.push_back({flag, leaf.field, leaf.path});
  }
  return table;
}

}  // namespace

static void Fields(MessageFields& io, Flags& flags) {
  io("job", flags.job);
  io("run_dir", flags.run_dir);
  io("init_weights", flags.init_weights);
  io("save_weights", flags.save_weights);
  io("bound", flags.bound_seconds);
  io("heartbeat_seconds", flags.heartbeat_seconds);
  io("format", flags.format);
  io("save_every_seconds", flags.save_every_seconds);
  io("save_every_updates", flags.save_every_updates);
  io("resume", flags.resume);
  io("keep", flags.keep);
  io("keep_every", flags.keep_every);
  io("failed_saves", flags.failed_saves);
  io("group_access", flags.group_access);
  io("out", flags.out);
  std::string signals = SignalNames(flags.stop_signals);
  io("stop_signals", signals);
  if (auto parsed = ParseSignals(signals); parsed.ok()) flags.stop_signals = *std::move(parsed);
  io("term_budget", flags.term_budget_seconds);
  io("on_nonfinite", flags.on_nonfinite);
  io("on_bad_record", flags.on_bad_record);
  io("bad_record_quota", flags.bad_record_quota);
  io("digest_every", flags.digest_every);
  io("nodes", flags.nodes);
  io("gpus_per_node", flags.gpus_per_node);
  io("strict", flags.strict);
  io("allow_gpu_sharing", flags.allow_gpu_sharing);
  io("time_algorithms", flags.time_algorithms);
  io("watch", flags.watch);
  io("rank", flags.rank);
  io("host", flags.host);
  io("level", flags.level);
  io("attempt", flags.attempt);
  io("follow", flags.follow);
  io("events", flags.events);
  io("attempt_dir", flags.attempt_dir);
  io("srun_rc", flags.srun_rc);
}

bool FlagRow::is_bool() const {
  return field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL;
}

bool FlagRow::IsOf(Verb verb) const {
  const std::string words = StrCat(" ", field->options().GetExtension(proto::is).verbs(), " ");
  const auto holds = [&words](std::string_view word) {
    return words.find(StrCat(" ", word, " ")) != std::string::npos;
  };
  return holds(Name(verb)) || (verb == Verb::kPlan && holds(Name(Verb::kTrain)));
}

const std::vector<FlagRow>& FlagTable() {
  static const std::vector<FlagRow> kTable = MakeTable();
  return kTable;
}

const FlagRow* FindFlag(std::string_view name) {
  if (name == "config") name = "job";
  const std::vector<FlagRow>& table = FlagTable();
  const auto row = std::find_if(table.begin(), table.end(),
                                [name](const FlagRow& one) { return one.name == name; });
  return row == table.end() ? nullptr : &*row;
}

void ReadFlags(proto::Flags message, Flags& flags) {
  MessageFields io(message, MessageFields::Direction::kRead);
  Fields(io, flags);
}

proto::Flags FlagsToProto(Flags flags) {
  proto::Flags message;
  MessageFields io(message, MessageFields::Direction::kWrite);
  Fields(io, flags);
  return message;
}

std::string SharedFlagsText(const Flags& flags) {
  proto::Flags message = FlagsToProto(flags);
  for (const FlagRow& row : FlagTable()) {
    const bool local = row.job_path.empty() && row.field->options().GetExtension(proto::is).local();
    if (local) message.GetReflection()->ClearField(&message, row.field);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

}  // namespace gaccd
