// The source file page.html, which draws the JSON in its element `data`: that of a sample run.
#pragma once

#include <string_view>

namespace gaccd {

[[nodiscard]] std::string_view PageHtml();

}  // namespace gaccd
