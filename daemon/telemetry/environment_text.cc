#include "daemon/telemetry/environment_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "daemon/config/flat_json.h"

namespace gaccd {
namespace {

constexpr std::string_view kPrefixes[] = {"SLURM_", "OMPI_MCA_", "PMIX_MCA_", "NCCL_", "CUDA_",
                                          "UCX_",   "GACCD_",    "OMP_",      "DNNL_"};
// Of names in any case. TRANSPORTS: the key that Open MPI's processes know each other by.
constexpr std::string_view kSecrets[] = {"TOKEN", "JWT",  "KEY",    "SECRET",    "PASS",
                                         "CRED",  "AUTH", "COOKIE", "TRANSPORTS"};
constexpr std::size_t kMaxValue = 4'096;

bool IsWanted(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) &&
         std::none_of(std::begin(kSecrets), std::end(kSecrets), [&](std::string_view secret) {
           return upper.find(secret) != std::string::npos;
         });
}

}  // namespace

std::string EnvironmentJson(const char* const* environment) {
  std::map<std::string_view, std::string_view> wanted;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    if (IsWanted(name)) wanted[name] = text.substr(std::min(equals + 1, text.size()));
  }
  std::string json = "{";
  for (const auto& [name, value] : wanted) {
    if (json.size() > 1) json += ',';
    json += JsonString(name) + ':' + JsonString(value.substr(0, kMaxValue));
  }
  return json + "}";
}

}  // namespace gaccd
