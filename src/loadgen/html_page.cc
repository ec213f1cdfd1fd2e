#include "loadgen/html_page.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadgen/svg_chart.h"

namespace shoal {
namespace {

constexpr char kStyle[] = R"(
:root{--bg:#fff;--fg:#1b2330;--soft:#5d6b7e;--line:#e2e7ee;--card:#f7f9fb;--a:#2563b8;--b:#d9822b;--bad:#c23b3b;--fill:#2563b82e}
@media (prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6ebf2;--soft:#98a6b8;--line:#2a323d;--card:#1a2028;--a:#6aa5f0;--b:#f0a860;--bad:#f07a7a;--fill:#6aa5f033}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:24px 20px 60px;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif}
h1{font-size:24px;margin:0 0 2px}h2{font-size:18px;margin:34px 0 8px}h3{font-size:14px;font-weight:600;margin:0 0 4px}
p{color:var(--soft);margin:2px 0 10px}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:10px;margin:18px 0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tile b{display:block;font-size:21px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}.tile.bad b{color:var(--bad)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:12px}.card{margin-bottom:12px;overflow-x:auto}
svg{width:100%;height:auto;display:block}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:600}
th:first-child,td:first-child{text-align:left}.words th,.words td{text-align:left}.words td{overflow-wrap:anywhere}
.grid{stroke:var(--line)}.frame{stroke:var(--soft);fill:none}.tick{fill:var(--soft);font-size:11px}.axis{fill:var(--soft);font-size:12px}
.curve{fill:none;stroke:var(--a);stroke-width:2}.curve2{fill:none;stroke:var(--b);stroke-width:1.6}.under{fill:var(--fill)}.bars{fill:var(--a)}
.dot{fill:var(--a);fill-opacity:.55}.dot-bad{fill:var(--bad)}.wait{fill:var(--b);fill-opacity:.75}.stream{fill:var(--a);fill-opacity:.75}.lost{fill:var(--bad)}
.mark{stroke:var(--b);stroke-dasharray:4 3}.mark-text{fill:var(--fg);font-size:11px}
.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin:0 5px 0 12px;vertical-align:-1px}
)";

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return absl::StrCat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>",
                      html_escaped(title), "</title><style>", kStyle, "</style></head><body>\n", body, "</body></html>\n");
}

std::string number(double value) {
  return value >= 1000 || value == std::floor(value) ? absl::StrFormat("%.0f", value) : value >= 10 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.3g", value);
}

std::string card(const std::string& title, const std::string& content) {
  return absl::StrCat("<div class=\"card\"><h3>", html_escaped(title), "</h3>", content, "</div>\n");
}

std::string tile(const std::string& value, const std::string& name, bool bad) {
  return absl::StrCat("<div class=\"tile", bad ? " bad" : "", "\"><b>", value, "</b><span>", html_escaped(name), "</span></div>");
}

}  // namespace shoal
