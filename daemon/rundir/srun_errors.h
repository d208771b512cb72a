// Why ranks ended, from what srun and they wrote to stderr (<attempt>/srun.err, rank/r*.err). Pure.
#pragma once

#include <string>
#include <string_view>

namespace gaccd {

// "n2: task 3: Killed; n3: task 5: Out Of Memory": of the lines "srun: error: n2: task 3: Killed"
// up to "Job step aborted", after which srun itself ends the ranks. Not of ranks that ended by
// themselves ("Exited with exit code 69"): they say why. At most four. Empty: it says nothing of
// the kind.
[[nodiscard]] std::string SrunErrors(std::string_view text);

// "rank 5 on n2: error (data, exit 65): labels": the first line with which gaccd ended, without its
// name. Empty: there is none.
[[nodiscard]] std::string GaccdError(std::string_view text);

}  // namespace gaccd
