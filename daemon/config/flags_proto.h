// The table of all flags, from proto/flags.proto and the fields of proto/job.proto with a flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/flags.h"

namespace google::protobuf {
class FieldDescriptor;
}

namespace gaccd {

struct FlagRow {
  std::string name;  // "micro-batch"
  const google::protobuf::FieldDescriptor* field;
  std::string job_path;  // "batch.micro"; empty: a field of proto::Flags

  [[nodiscard]] bool is_bool() const;
  [[nodiscard]] bool IsListedFor(Verb verb) const;   // in its help
  [[nodiscard]] bool IsAcceptedBy(Verb verb) const;  // also those added by VerbArguments
};
// In the order of the two files. Thread-safe.
[[nodiscard]] const std::vector<FlagRow>& FlagTable();
// nullptr: not found.
[[nodiscard]] const FlagRow* FindFlag(std::string_view name);

// "name: value" for every flag that must be equal on all ranks, as text proto.
[[nodiscard]] std::string SharedFlagsText(const Flags& flags);

}  // namespace gaccd
