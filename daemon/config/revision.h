// Versions of this build. revision.cmake writes the definitions at every build, so they are
// current.
#pragma once

namespace gaccd {

[[nodiscard]] const char* GaccdVersion();   // "0.1.0"
[[nodiscard]] const char* GaccdRevision();  // "3c693d9f52c1-dirty", or "unknown revision"
[[nodiscard]] const char* GflagsVersion();  // "2.2.2"

}  // namespace gaccd
