// Extracts why ranks ended from stderr of srun and the ranks (<attempt>/srun.err, rank/r*.err).
#pragma once

#include <string>
#include <string_view>

namespace gaccd {

// "n2: task 3: Killed; n3: task 5: Out Of Memory": from the lines "srun: error: n2: task 3: Killed"
// up to "Job step aborted", after which srun itself kills the ranks. Omits ranks that exited by
// themselves ("Exited with exit code 69"), as they report the reason. At most four. Empty: none.
[[nodiscard]] std::string SrunErrors(std::string_view text);
// SrunErrors() of <attempt>/srun.err.
[[nodiscard]] std::string ReadSrunErrors(const std::string& attempt_dir);

// "rank 5 on n2: error (data, exit 65): labels": the first final error of gaccd, without the
// program name. Empty: none.
[[nodiscard]] std::string GaccdError(std::string_view text);

}  // namespace gaccd
