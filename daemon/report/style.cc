#include "daemon/report/page.h"

namespace gaccd {

// c0 to c7: lines; p0 to p5: phases; g0 to g7: where the time went; h0 to h4: shares of the map.
const char* const kPageStyle = R"css(
:root{--page:#f4f6f9;--card:#fff;--ink:#151a21;--soft:#5c6773;--line:#e1e6ec;--fill:#eef1f5;
--c0:#2563eb;--c1:#d9730d;--c2:#0f9960;--c3:#c2337f;--c4:#7a4fd0;--c5:#0b8fa8;--c6:#7d8c14;
--c7:#d13f3f;
--good:#0f9960;--live:#2563eb;--warn:#c77700;--bad:#d13f3f;--h0:#dce8fb;--h1:#a9c8f8;--h2:#6aa0f0;
--h3:#2f6fdd;--h4:#143f96}
@media(prefers-color-scheme:dark){:root{--page:#0e1116;--card:#171b22;--ink:#e7ebf0;--soft:#98a3b0;
--line:#2a313b;--fill:#20262f;--c0:#6ea0ff;--c1:#f2a14a;--c2:#4cc38a;--c3:#ee7fb6;--c4:#b094f5;
--c5:#4fc3d9;
--c6:#b9c94d;--c7:#f28080;--good:#4cc38a;--live:#6ea0ff;--warn:#f2b04a;--bad:#f28080;--h0:#1b2a45;
--h1:#234a86;--h2:#2f6bc4;--h3:#5a97f2;--h4:#b9d4ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","PingFang SC",
"Microsoft YaHei",
"Noto Sans CJK SC","WenQuanYi Micro Hei","DejaVu Sans",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1120px;margin:0 auto;padding:16px 16px 48px}
nav{max-width:1120px;margin:0 auto;padding:12px 16px 0;text-align:right;font-size:13px}
nav label{cursor:pointer;padding:3px 10px;border-radius:99px;color:var(--soft)}
input[name=language]{position:absolute;opacity:0;pointer-events:none}
#en:checked~nav [for=en],#zh:checked~nav [for=zh]{background:var(--card);color:var(--ink);
box-shadow:inset 0 0 0 1px var(--line)}
#en:checked~main [lang=zh],#zh:checked~main [lang=en]{display:none}
#en:focus-visible~nav [for=en],#zh:focus-visible~nav [for=zh]{outline:2px solid var(--live)}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:20px 24px;
margin:0 0 16px}
h1{font-size:30px;line-height:1.2;margin:2px 0 4px;letter-spacing:-.02em;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 10px;letter-spacing:-.01em}
h3{font-size:14px;margin:16px 0 6px;color:var(--soft)}
p{margin:0 0 10px}b{font-weight:600}
.note,.made,.what,small{color:var(--soft);font-size:13px}
.what{overflow-wrap:anywhere}
.hero{--tone:var(--soft);border-top:4px solid var(--tone)}
.hero.done{--tone:var(--good)}.hero.running,.hero.starting,.hero.submitted{--tone:var(--live)}
.hero.stale,.hero.stopped{--tone:var(--warn)}.hero.failed{--tone:var(--bad)}
.hero h2{font-size:13px;color:var(--soft);font-weight:600;margin:16px 0 6px}
.state{display:inline-block;margin:0 0 6px;padding:2px 12px;border-radius:99px;font-weight:600;
font-size:13px;
color:var(--tone);box-shadow:inset 0 0 0 1.5px var(--tone)}
.where{margin:12px 0 6px}
.progress{height:8px;border-radius:99px;background:var(--fill);overflow:hidden}
.progress i{display:block;height:100%;background:var(--tone);border-radius:99px}
.reason{margin:14px 0 0;padding:10px 14px;border-left:3px solid var(--tone);background:var(--fill);
border-radius:0 8px 8px 0;overflow-wrap:anywhere}
pre,code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{margin:0;overflow-x:auto;padding:12px 14px;background:var(--fill);border-radius:8px;tab-size:2}
.command{user-select:all;white-space:pre-wrap;overflow-wrap:anywhere}
.advice{margin:10px 0 0;padding-left:20px;overflow-wrap:anywhere}.made{margin:10px 0 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:18px 24px;margin:0}
.tiles dt{color:var(--soft);font-size:13px}
.tiles dd{margin:0;font-size:26px;line-height:1.25;font-weight:600;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tiles small{display:block;font-weight:400;letter-spacing:0;line-height:1.4;font-size:12.5px}
.bars{display:grid;gap:8px;margin:14px 0}
.bar{display:grid;grid-template-columns:56px 1fr 64px 74px;gap:12px;align-items:center;
color:var(--soft)}
.bar.chosen{color:var(--ink)}.bar b,.error{text-align:right;font-variant-numeric:tabular-nums}
.track{position:relative;height:18px;background:var(--fill);border-radius:5px;display:block}
.track i{position:absolute;top:0;bottom:0;left:0;border-radius:5px}
.bar .track i{background:var(--soft);opacity:.4}.bar.chosen .track i{background:var(--good);
opacity:1}
.track u{position:absolute;top:-4px;bottom:-4px;width:0;border-left:2px dashed var(--ink)}
.ranks{display:block;width:100%;max-height:180px;margin:6px 0 14px}
.ranks .more{fill:var(--c0)}.ranks .less{fill:var(--h1)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:4px 0 10px}
i[class]{font-style:normal}
.legend i,td i,.tip i{display:inline-block;width:11px;height:11px;border-radius:3px;
margin-right:7px;
background:var(--soft)}
.legend .more{background:var(--c0)}.legend .less{background:var(--h1)}
figure{margin:0 0 22px}figcaption{font-size:14px;font-weight:600;margin-bottom:6px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 28px}
.two>figure:last-child:nth-child(odd){grid-column:1/-1}
.chart{padding:16px 8px 24px 56px}
.plot{position:relative;height:240px;touch-action:pan-y}.two .plot{height:180px}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot path{vector-effect:non-scaling-stroke;fill:none}
.grid{stroke:var(--line);stroke-width:1}
.begin{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 4}
.line{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.line.again{opacity:.35}.line.dots{stroke-width:7}
.p99{stroke:var(--ink);stroke-width:1.3}
.plot>span{position:absolute;font-size:12px;line-height:1;color:var(--soft);white-space:nowrap;
font-variant-numeric:tabular-nums}
.plot .y{right:100%;margin-right:8px;transform:translateY(-50%)}
.plot .x{top:100%;margin-top:8px;transform:translateX(-50%)}
.plot .mark{bottom:100%;margin-bottom:3px;transform:translateX(-50%)}
.tip,.ruler{display:none;position:absolute;pointer-events:none}
.live .tip,.live .ruler{display:block}
.tip{top:8px;margin:0 10px;padding:6px 10px;border-radius:8px;background:var(--card);
border:1px solid var(--line);box-shadow:0 4px 14px #0002;font-size:12.5px;white-space:nowrap;
z-index:1;
font-variant-numeric:tabular-nums}
.ruler{top:0;bottom:0;border-left:1px solid var(--soft)}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}
path.c4{stroke:var(--c4)}path.c5{stroke:var(--c5)}path.c6{stroke:var(--c6)}path.c7{stroke:var(--c7)}
i.c0,i.g0,i.train{background:var(--c0)!important}i.c1{background:var(--c1)!important}
i.c2{background:var(--c2)!important}i.c3{background:var(--c3)!important}
i.c4{background:var(--c4)!important}
i.c5{background:var(--c5)!important}i.c6{background:var(--c6)!important}
i.c7{background:var(--c7)!important}
i.p99{background:var(--ink)!important}
.plot .p0{fill:var(--c0)}.plot .p1{fill:var(--c4)}.plot .p2{fill:var(--c7)}.plot .p3{fill:var(--c2)}
.plot .p4{fill:var(--c1)}.plot .p5{fill:var(--soft)}.plot .area{opacity:.82}
i.p0{background:var(--c0)!important}i.p1{background:var(--c4)!important}
i.p2{background:var(--c7)!important}
i.p3{background:var(--c2)!important}i.p4{background:var(--c1)!important}
i.p5{background:var(--soft)!important}
i.g0{background:var(--good)!important}i.g1,i.init{background:var(--c5)!important}
i.g2{background:var(--c1)!important}i.g3{background:var(--c6)!important}
i.g4{background:var(--c3)!important}
i.g5{background:var(--bad)!important}i.g6{background:var(--c4)!important}
i.g7{background:var(--soft)!important}
.stack{display:flex;height:22px;border-radius:6px;overflow:hidden;background:var(--fill);
margin:0 0 14px}
.map{display:flex;gap:8px;margin:0 0 12px;height:calc(var(--rows)*15px)}
.map ol{list-style:none;margin:0;padding:0;display:flex;flex-direction:column;font-size:11px;
line-height:15px;
color:var(--soft);max-width:110px}
.map li{flex:1;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.map svg{flex:1;min-width:0;height:100%;background:var(--fill);border-radius:6px}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.timeline{display:grid;gap:6px;margin:0 0 8px}
.timeline>div{display:grid;grid-template-columns:minmax(80px,130px) 1fr;gap:12px;align-items:center}
.timeline .name{font-size:12.5px;color:var(--soft);overflow:hidden;text-overflow:ellipsis;
white-space:nowrap}
.timeline .track i{min-width:2px;border-radius:3px}
.scroll{overflow-x:auto;margin:0 -4px}
table{border-collapse:collapse;min-width:min(100%,480px);font-size:13.5px;
font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:500;color:var(--soft);font-size:12.5px}
th,td{padding:6px 20px 6px 4px;border-bottom:1px solid var(--line);vertical-align:top;
white-space:nowrap}
tr:last-child td{border-bottom:0}
.n{text-align:right}
.why div{position:sticky;left:4px;white-space:normal;overflow-wrap:anywhere;color:var(--soft);
max-width:min(70em,calc(100vw - 60px))}
tr:has(+.why) td{border-bottom:0}.why td{padding-top:0}
.t{white-space:normal;overflow-wrap:anywhere;min-width:14em}
details summary{cursor:pointer;color:var(--soft)}details pre{margin-top:10px;max-height:480px}
.failures,.lines{margin:0;padding-left:20px;overflow-wrap:anywhere}.failures p{margin:2px 0 8px;
color:var(--soft)}
.lines{font-size:13px}
.diff{max-height:480px}.diff del{color:var(--bad);text-decoration:none}.diff ins{color:var(--good);
text-decoration:none}
@media(max-width:600px){main{padding:10px 10px 32px}nav{padding:10px 10px 0}
.card{padding:16px;border-radius:12px}h1{font-size:24px}.tiles{grid-template-columns:1fr 1fr;
gap:14px 16px}
.tiles dd{font-size:21px}.bar{grid-template-columns:46px 1fr 48px;gap:8px}.error{grid-column:2/4;
margin-top:-6px;
font-size:12.5px}.t{min-width:9em}.chart{padding-left:46px;padding-right:0}.plot{height:200px}
.two .plot{height:150px}
.plot .x:nth-of-type(even){display:none}.timeline>div{grid-template-columns:80px 1fr}
.map ol{max-width:64px}}
@media print{body{background:#fff}nav{display:none}.card{break-inside:avoid}}
)css";

}  // namespace gaccd
