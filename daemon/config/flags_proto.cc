#include "daemon/config/flags_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>

#include "daemon/config/fields.h"
#include "daemon/config/kebab_case.h"
#include "proto/field.pb.h"
#include "proto/flags.pb.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

std::vector<FlagRow> MakeTable() {
  std::vector<FlagRow> table;
  for (const NamedField& leaf : LeafFields(*proto::Flags::descriptor())) {
    table.push_back({ToKebabCase(leaf.path), leaf.field, ""});
  }
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    const std::string& flag = leaf.field->options().GetExtension(proto::field).flag();
    if (!flag.empty()) table.push_back({flag, leaf.field, leaf.path});
  }
  return table;
}

}  // namespace

bool FlagRow::is_bool() const {
  return field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL;
}

bool FlagRow::IsListedFor(Verb verb) const {
  return HasWord(field->options().GetExtension(proto::field).verbs(), Name(verb));
}

bool FlagRow::IsAcceptedBy(Verb verb) const {
  return IsListedFor(verb) || (GetVerbRow(verb).takes.flags_of_train && IsListedFor(Verb::kTrain));
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

std::string SharedFlagsText(const Flags& flags) {
  proto::Flags message = ToProto(flags);
  for (const FlagRow& row : FlagTable()) {
    const bool local =
        row.job_path.empty() && row.field->options().GetExtension(proto::field).local();
    if (local) message.GetReflection()->ClearField(&message, row.field);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return flags.micro_batch_auto ? text + "micro_batch: auto\n" : text;
}

}  // namespace gaccd
