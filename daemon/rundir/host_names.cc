#include "daemon/rundir/host_names.h"

#include <algorithm>
#include <cctype>

namespace gaccd {

std::string SafeHosts(const std::string& hosts) {
  const bool safe = !hosts.empty() && hosts[0] != '-' && std::ranges::all_of(hosts, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == ',' ||
           c == '-';
  });
  return safe ? hosts : std::string();
}

}  // namespace gaccd
