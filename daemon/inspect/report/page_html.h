// The source file page.html. It draws the JSON in its element `data`; here that of a sample run.
#pragma once

#include <string_view>

namespace gaccd {

[[nodiscard]] std::string_view PageHtml();

}  // namespace gaccd
