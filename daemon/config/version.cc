#include <elf.h>
#include <google/protobuf/stubs/common.h>
#include <link.h>

#include <cstring>
#include <span>
#include <string_view>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/config/help.h"
#include "daemon/config/revision.h"

namespace gaccd {
namespace {

constexpr std::size_t kNameWidth = 12;
constexpr std::size_t kTextWidth = 80 - kNameWidth - 1;

std::string Line(const Version& version) {
  std::string name = version.first;
  if (name.size() < kNameWidth) name.resize(kNameWidth, ' ');
  std::string text = name;
  std::string_view rest = version.second;
  while (rest.size() > kTextWidth) {
    const std::size_t space = rest.rfind(' ', kTextWidth);
    if (space == std::string_view::npos) break;
    text += StrCat(" ", rest.substr(0, space), "\n", std::string(kNameWidth, ' '));
    rest.remove_prefix(space + 1);
  }
  return StrCat(text, " ", rest, "\n");
}

// A note is a header, a name and a content, each padded to 4 bytes (ELF, "Note Section").
std::size_t Padded(std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; }

std::string FindBuildId(const char* notes, std::size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, notes, sizeof note);
    const std::size_t total = sizeof note + Padded(note.n_namesz) + Padded(note.n_descsz);
    if (total > size) break;
    const char* name = notes + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      const char* content = name + Padded(note.n_namesz);
      return Hex(std::as_bytes(std::span(content, note.n_descsz)));
    }
    notes += total;
    size -= total;
  }
  return {};
}

// The first object reported by the loader is the program itself.
int VisitProgram(dl_phdr_info* info, std::size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto address = info->dlpi_addr + header.p_vaddr;  // an integer
    const auto* notes =
        reinterpret_cast<const char*>(address);  // NOLINT(performance-no-int-to-ptr)
    id = FindBuildId(notes, header.p_memsz);
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(VisitProgram, &id);
  return id;
}

std::string VersionText(const std::vector<Version>& more) {
  std::string text = Line({"gaccd", StrCat(GaccdVersion(), " (", GaccdRevision(), ")")});
  text += Line({"build id", BuildId()});
  text += Line({"compiler", __VERSION__});
  text += Line({"protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)});
  text += Line({"gflags", GflagsVersion()});
  for (const Version& version : more) text += Line(version);
  return text;
}

}  // namespace gaccd
