#include "daemon/telemetry/environment_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "daemon/config/flat_json.h"

namespace gaccd {
namespace {

constexpr std::string_view kPrefixes[] = {"SLURM_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "NCCL_",
                                          "CUDA_",  "UCX_",      "GACCD_",    "OMP_",      "DNNL_"};
// In upper case. TRANSPORTS: Open MPI's authentication key.
constexpr std::string_view kSecrets[] = {"TOKEN", "JWT",  "KEY",    "SECRET",    "PASS",
                                         "CRED",  "AUTH", "COOKIE", "TRANSPORTS"};
constexpr std::size_t kMaxValue = 4'096;

// Prefixes of keys of well-known services, JSON web tokens and PEM keys.
constexpr std::string_view kKeyStarts[] = {"ghp_", "github_pat_", "glpat-", "hf_",
                                           "sk-",  "AKIA",        "eyJ",    "-----BEGIN"};

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

// Whether it is a key, or contains "password=x" or "https://user:password@host".
bool IsSecret(std::string_view value) {
  for (const std::string_view start : kKeyStarts) {
    if (value.starts_with(start)) return true;
  }
  const std::string upper = Upper(value);
  for (const std::string_view secret : kSecrets) {
    for (std::size_t at = upper.find(secret); at != std::string::npos;
         at = upper.find(secret, at + 1)) {
      const std::size_t end = upper.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", at);
      if (end != std::string::npos && (upper[end] == '=' || upper[end] == ':')) return true;
    }
  }
  const std::size_t scheme = value.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view host = value.substr(scheme + 3, value.find('/', scheme + 3) - scheme - 3);
  return host.find('@') != std::string_view::npos;
}

bool IsWanted(std::string_view name) {
  const std::string upper = Upper(name);
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
    const std::string_view shown = value.substr(0, kMaxValue);
    json += JsonString(name) + ':' + JsonString(IsSecret(shown) ? "[hidden]" : shown);
  }
  return json + "}";
}

}  // namespace gaccd
