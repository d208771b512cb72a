// Job text (proto/job.proto in text form) to Job and back. Everything in it is checked here, so a
// Job can be trusted: required fields, ranges, names, kinds that are compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Errors are kConfig and begin with "file:line:column: " for the syntax and unknown fields, and
// with "file: field.path: " for a value, which is quoted. The text is at most kMaxTextBytes long;
// no message of a job holds its own kind, so the schema bounds the depth. A byte-order mark at the
// start is skipped. batch.target may be missing; then --target-batch must be given. kPredict takes
// data without labels or vectors, whatever the loss and the metrics need.
[[nodiscard]] Result<Job> ParseJobText(std::string_view text, std::string_view file_name,
                                       Verb verb = Verb::kTrain);

// The same from a file, with its folder. kIo when it cannot be read.
[[nodiscard]] Result<Job> LoadJob(const std::string& path, Verb verb = Verb::kTrain);

// The job with its values overridden by the flags, for the verb of the flags. kConfig when
// they contradict; kUsage when --set names what this job does not have (a layer, the options of
// another optimizer).
[[nodiscard]] Result<Job> OverlayFlags(Job job, const Flags& flags);

// What the plan is asked for. kUsage when neither the job nor the flags gave a target.
[[nodiscard]] Result<PlanRequest> ToPlanRequest(const BatchSpec& batch, std::int64_t nodes,
                                                std::int64_t gpus_per_node);

// The job with absolute paths of data: what a relative one names now, in the current folder or else
// in the job's, it names from anywhere. One that names nothing stays as it is.
[[nodiscard]] Job WithAbsolutePaths(const Job& job);

// The paths of data that name nothing, neither in the current folder nor in the job's.
[[nodiscard]] std::vector<std::string> MissingFiles(const Job& job);

// The whole job with all its defaults; ParseJobText gives the same job again.
[[nodiscard]] std::string JobText(const Job& job);

// 32 hex digits of the job and of the flags outside of it (strict, bound, the paths). Equal
// on two ranks if and only if both would do the same. Not cryptographic.
[[nodiscard]] std::string JobDigest(const Job& job, const Flags& flags);

// 128-bit FNV-1a of any text, as 32 hex digits.
[[nodiscard]] std::string Digest(std::string_view text);

}  // namespace gaccd
