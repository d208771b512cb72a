// Between proto::Job and Job, both ways.
#pragma once

#include "daemon/config/job.h"

namespace gaccd {

namespace proto {
class Job;
}

[[nodiscard]] Job JobFromProto(proto::Job message);

// Every field is set, also those that have their default; batch.target only when it is given.
[[nodiscard]] proto::Job JobToProto(Job job);

}  // namespace gaccd
