// Host lists in SLURM's short form, without scontrol, which containers lack.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

inline constexpr std::size_t kMaxHosts = 65'536;

// The host names of a list such as "tux[1-3,07]-ib,login,rack[0-1]n[08-10]", in the order of the
// list; with several brackets in a name the last one varies fastest.
//   list    = name {"," name}
//   name    = one or more of: letters, digits, ".", "_", "-", or "[" range {"," range} "]"
//   range   = number ["-" number]      the width of the first number pads with zeros: 08-10, 7-10
// A host that is listed twice is returned twice. kConfig, with the invalid part: an empty or
// incomplete list, another character, a descending range or one of more than 18 digits, a host name
// of more than 255 characters, more than max_hosts hosts (checked before the list is expanded).
[[nodiscard]] Result<std::vector<std::string>> ExpandHostlist(std::string_view list,
                                                              std::size_t max_hosts = kMaxHosts);

// Joins names that differ only in a number at the end: "n[1-30],login". Sorted, without duplicates.
[[nodiscard]] std::string CompressHostlist(const std::vector<std::string>& hosts);

// Whether both are names of one host. SLURM's names usually have no domain; the hosts' own names
// may have one. Names with different domains are different hosts.
[[nodiscard]] bool IsSameHost(std::string_view a, std::string_view b);

}  // namespace gaccd
