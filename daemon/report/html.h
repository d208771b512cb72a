// Html: a page in one or two languages, built piece by piece. Whatever comes from a run goes
// through Text(), or is an argument of Say(): it cannot become markup.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "daemon/config/flags_spec.h"

namespace gaccd {

// The same in English and in Chinese; {0}, {1}, ... stand for values. Without < > &.
struct Bilingual {
  const char* en;
  const char* zh;
};

// `text` as HTML shows it, also in an attribute in quotes: valid UTF-8, with < > & " ' escaped and
// without control characters but line breaks and tabs.
[[nodiscard]] std::string EscapeHtml(std::string_view text);

// Not thread-safe.
class Html {
 public:
  explicit Html(PageLanguage language) : language_(language) {}

  // Markup.
  Html& operator<<(std::string_view markup) {
    text_ += markup;
    return *this;
  }
  Html& Text(std::string_view text) { return *this << EscapeHtml(text); }
  // In the languages of the page; where it has both, one of them is hidden by the style.
  Html& Say(const Bilingual& words, std::initializer_list<std::string> values = {});
  // <h2>, and the section of this id around what follows, until EndSection().
  Html& BeginSection(std::string_view id, const Bilingual& title);
  Html& EndSection() { return *this << "</section>\n"; }

  [[nodiscard]] PageLanguage language() const { return language_; }
  [[nodiscard]] std::string Take() && { return std::move(text_); }

 private:
  PageLanguage language_;
  std::string text_;
};

}  // namespace gaccd
