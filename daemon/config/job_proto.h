// Between proto::Job and Job, both ways. Only job_text.cc needs it.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

namespace proto {
class Job;
}

// kConfig with "field.path: what is wrong, found value".
[[nodiscard]] Result<Job> JobFromProto(const proto::Job& message);

// Every field is set, also those that have their default.
void FillJobProto(const Job& job, proto::Job& message);

}  // namespace gaccd
