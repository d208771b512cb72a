// Job text (proto/job.proto in text form) to Job and back. Everything is checked here, so a Job can
// be trusted: required fields, ranges, names, compatible kinds.
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

// kConfig; the message begins with "file:line:column: " for syntax errors and unknown fields, and
// with "file: field.path: " for a value, which is quoted. The text is at most kMaxTextBytes long;
// no message of a job contains its own kind, so the schema limits the depth. A byte-order mark at
// the start is skipped. batch.target may be missing; then --target-batch must be given. kPredict
// accepts data without labels or vectors, whatever the loss and the metrics need.
[[nodiscard]] Result<Job> ParseJobText(std::string_view text, std::string_view file_name,
                                       Verb verb = Verb::kTrain);

// The same for a file, with its folder. kIo if it cannot be read.
[[nodiscard]] Result<Job> LoadJob(const std::string& path, Verb verb = Verb::kTrain);

// The job with values overridden by the flags, for the verb of the flags. kConfig if they
// contradict each other; kUsage if --set names something that this job does not have (a layer, the
// options of another optimizer).
[[nodiscard]] Result<Job> OverlayFlags(Job job, const Flags& flags);

// The request for the plan. kUsage if neither the job nor the flags set a target.
[[nodiscard]] Result<PlanRequest> ToPlanRequest(const BatchSpec& batch, std::int64_t nodes,
                                                std::int64_t gpus_per_node);

// The job with absolute data paths: relative paths are resolved in the current folder or else in
// the job's folder. A path that does not exist is not changed.
[[nodiscard]] Job WithAbsolutePaths(const Job& job);
// The same for the path in "FIELD=VALUE" of --set; other settings are not changed.
[[nodiscard]] std::string WithAbsolutePath(const std::string& setting, const std::string& folder);

// Data paths that exist neither in the current folder nor in the job's.
[[nodiscard]] std::vector<std::string> MissingFiles(const Job& job);
// Whether it is one of the files that the job names, also by a pattern.
[[nodiscard]] bool ReadsFile(const Job& job, const std::string& file);

// The whole job with all defaults; ParseJobText() of it returns the same job.
[[nodiscard]] std::string JobText(const Job& job);

// 32 hex digits of the job and of the flags outside of it (strict, bound, the paths). Equal on two
// ranks if and only if both would do the same. Not cryptographic.
[[nodiscard]] std::string JobDigest(const Job& job, const Flags& flags);

// 128-bit FNV-1a of any text, as 32 hex digits.
[[nodiscard]] std::string Digest(std::string_view text);

}  // namespace gaccd
