#include "daemon/report/page.h"

namespace gaccd {

// The values under the pointer: of each line the point next to it. The page is whole without.
const char* const kPageScript = R"js(
'use strict';
if ((navigator.language || '').startsWith('zh') && document.getElementById('zh'))
  document.getElementById('zh').checked = true;
for (const plot of document.querySelectorAll('.plot')) {
  const first = +plot.dataset.first, last = +plot.dataset.last;
  const lines = [...plot.querySelectorAll('path[data-x]')].map(path => ({
    name: path.dataset.curve, style: path.classList[1],
    x: path.dataset.x.split(' ').map(Number), y: path.dataset.y.split(' ')}));
  if (!lines.length) continue;
  const tip = plot.appendChild(document.createElement('div'));
  const ruler = plot.appendChild(document.createElement('div'));
  tip.className = 'tip';
  ruler.className = 'ruler';
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  plot.addEventListener('pointermove', event => {
    const box = plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const step = first + share * (last - first);
    tip.textContent = '';
    const reach = Math.max(1, (last - first) / 50);
    for (const line of lines) {
      const at = nearest(line.x, step);
      if (Math.abs(line.x[at] - step) > reach) continue;
      const row = tip.appendChild(document.createElement('div'));
      row.appendChild(document.createElement('i')).className = line.style;
      row.append(line.name + ' ' + Number(line.y[at]).toPrecision(6) + ' @ ' + line.x[at]);
    }
    plot.classList.toggle('live', tip.childNodes.length > 0);
    ruler.style.left = 100 * share + '%';
    tip.style[share < .5 ? 'left' : 'right'] = 100 * (share < .5 ? share : 1 - share) + '%';
    tip.style[share < .5 ? 'right' : 'left'] = 'auto';
  });
  plot.addEventListener('pointerleave', () => plot.classList.remove('live'));
}
)js";

}  // namespace gaccd
