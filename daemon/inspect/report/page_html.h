// page.html, as it is in the sources: it draws the JSON in its element `data`, of a sample run.
#pragma once

#include <string_view>

namespace gaccd {

[[nodiscard]] std::string_view PageHtml();

}  // namespace gaccd
