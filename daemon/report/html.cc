#include "daemon/report/html.h"

#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"

namespace gaccd {
namespace {

// `words` with its values, which are escaped.
std::string Filled(std::string_view words, std::initializer_list<std::string> values) {
  std::string text;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool holds = words[at] == '{' && at + 2 < words.size() && words[at + 2] == '}';
    const auto place = holds ? static_cast<std::size_t>(words[at + 1] - '0') : values.size();
    if (place < values.size()) {
      text += StrCat("<b>", EscapeHtml(values.begin()[place]), "</b>");
      at += 2;
    } else {
      text += words[at];
    }
  }
  return text;
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : ValidUtf8(text)) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte >= 0x20 && byte != 0x7F) || c == '\n' || c == '\t') escaped += c;
      }
    }
  }
  return escaped;
}

Html& Html::Say(const Bilingual& words, std::initializer_list<std::string> values) {
  if (language_ == PageLanguage::kEn) return *this << Filled(words.en, values);
  if (language_ == PageLanguage::kZh) return *this << Filled(words.zh, values);
  return *this << "<span lang=en>" << Filled(words.en, values) << "</span><span lang=zh>"
               << Filled(words.zh, values) << "</span>";
}

Html& Html::BeginSection(std::string_view id, const Bilingual& title) {
  return (*this << "<section class=card id=" << id << "><h2>").Say(title) << "</h2>\n";
}

}  // namespace gaccd
