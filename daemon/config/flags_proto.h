// The table of all flags, from proto/flags.proto and the flags that proto/job.proto gives its
// fields.
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
  [[nodiscard]] bool IsListedFor(Verb verb) const;  // in its help
  [[nodiscard]] bool IsOf(Verb verb) const;         // also those that VerbArguments adds
};
// In the order of the two files. Thread-safe.
[[nodiscard]] const std::vector<FlagRow>& FlagTable();
// nullptr: there is none.
[[nodiscard]] const FlagRow* FindFlag(std::string_view name);

// "name: value" of every flag on which ranks must agree, as text proto.
[[nodiscard]] std::string SharedFlagsText(const Flags& flags);

}  // namespace gaccd
