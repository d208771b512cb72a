// Host lists in SLURM's short form, expanded without scontrol, which containers lack.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

inline constexpr std::size_t kMaxHosts = 65'536;

// The host names of a list such as "tux[1-3,07]-ib,login,rack[0-1]n[08-10]", in the order of the
// list; of several brackets in one name the last one runs fastest.
//   list    = name {"," name}
//   name    = one or more of: letters, digits, ".", "_", "-", or "[" range {"," range} "]"
//   range   = number ["-" number]      the width of the first number pads with zeros: 08-10, 7-10
// A host that is listed twice is returned twice. Errors are kConfig and name the offending part: an
// empty or unfinished list, another character, a range that runs backwards or has more than 18
// digits, a host name of more than 255 characters, more than max_hosts hosts (found before they are
// made).
[[nodiscard]] Result<std::vector<std::string>> ExpandHostlist(std::string_view list,
                                                              std::size_t max_hosts = kMaxHosts);

}  // namespace gaccd
