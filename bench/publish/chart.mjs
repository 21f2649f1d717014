/**
 * A chart as SVG text: panels of horizontal bars, two in a row, readable on light and on dark ground. Written by hand,
 * as it is a few rectangles and texts.
 */

const PANEL = { width: 440, head: 52, row: 26, foot: 14, gap: 20 }
const NAME_WIDTH = 128
const VALUE_WIDTH = 80
const BAR_HEIGHT = 14
const BAR_MOST = PANEL.width - NAME_WIDTH - VALUE_WIDTH - 24
const MARGIN = 20
/** On a logarithmic scale the shortest bar still shows. */
const LEAST_SHARE = 0.02

const STYLE = `
    svg { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
    .ground { fill: #ffffff; } .panel { fill: #f6f8fa; } .title { fill: #1f2328; font-weight: 600; }
    .note { fill: #59636e; font-size: 11px; } .name, .value { fill: #1f2328; }
    .value { font-variant-numeric: tabular-nums; } .bar { fill: #afb8c1; } .ours .bar { fill: #0969da; }
    .ours .name, .ours .value { font-weight: 600; } .none { fill: #59636e; font-style: italic; }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0d1117; } .panel { fill: #161b22; } .title, .name, .value { fill: #e6edf3; }
      .note, .none { fill: #9198a1; } .bar { fill: #545d68; } .ours .bar { fill: #4493f8; }
    }`

/**
 * @typedef {{ name: string, value: number | null, text: string, ours?: boolean }} Bar `null`: there is no figure, and
 *   `text` says why
 * @typedef {{ title: string, note: string, bars: Bar[], logarithmic?: boolean }} Panel
 * @param {{ title: string, note: string, panels: readonly Panel[] }} chart
 * @returns {string} the SVG document
 */
export function chart({ title, note, panels }) {
  const head = 66
  const width = MARGIN * 2 + PANEL.width * 2 + PANEL.gap
  let top = head
  const drawn = []
  for (let i = 0; i < panels.length; i += 2) {
    const pair = panels.slice(i, i + 2)
    const height = Math.max(...pair.map(heightOf))
    for (const [column, panel] of pair.entries()) {
      drawn.push(panelAt(panel, MARGIN + column * (PANEL.width + PANEL.gap), top, height))
    }
    top += height + PANEL.gap
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" width="${width}" height="${top}" role="img" aria-label="${escaped(title)}">`,
    `  <style>${STYLE}\n  </style>`,
    `  <rect class="ground" width="${width}" height="${top}" rx="8"/>`,
    `  <text class="title" x="${MARGIN}" y="34" font-size="17">${escaped(title)}</text>`,
    `  <text class="note" x="${MARGIN}" y="53">${escaped(note)}</text>`,
    ...drawn,
    '</svg>',
    '',
  ].join('\n')
}

const heightOf = ({ bars }) => PANEL.head + bars.length * PANEL.row + PANEL.foot

function panelAt({ title, note, bars, logarithmic = false }, x, y, height) {
  const shares = sharesOf(
    bars.map(({ value }) => value),
    logarithmic,
  )
  return [
    `  <g transform="translate(${x} ${y})">`,
    `    <rect class="panel" width="${PANEL.width}" height="${height}" rx="6"/>`,
    `    <text class="title" x="14" y="23">${escaped(title)}</text>`,
    `    <text class="note" x="14" y="40">${escaped(note)}${logarithmic ? ', logarithmic' : ''}</text>`,
    ...bars.map((bar, i) => barAt(bar, shares[i], PANEL.head + i * PANEL.row)),
    '  </g>',
  ].join('\n')
}

function barAt({ name, value, text, ours = false }, share, y) {
  const width = Math.max(1, Math.round(share * BAR_MOST))
  const baseline = y + BAR_HEIGHT - 3
  return [
    `    <g${ours ? ' class="ours"' : ''}>`,
    `      <text class="name" x="${NAME_WIDTH}" y="${baseline}" text-anchor="end">${escaped(name)}</text>`,
    ...(value === null
      ? [`      <text class="none" x="${NAME_WIDTH + 10}" y="${baseline}">${escaped(text)}</text>`]
      : [
          `      <rect class="bar" x="${NAME_WIDTH + 10}" y="${y}" width="${width}" height="${BAR_HEIGHT}" rx="2"/>`,
          `      <text class="value" x="${NAME_WIDTH + 16 + width}" y="${baseline}">${escaped(text)}</text>`,
        ]),
    '    </g>',
  ].join('\n')
}

/** Of the longest bar, each. */
function sharesOf(values, logarithmic) {
  const known = values.filter((value) => value !== null && value > 0)
  const most = Math.max(...known)
  if (!logarithmic) return values.map((value) => (value === null ? 0 : value / most))
  const least = Math.min(...known)
  const span = Math.log(most / least)
  return values.map((value) => {
    if (value === null || value <= 0) return 0
    return span === 0 ? 1 : LEAST_SHARE + (1 - LEAST_SHARE) * (Math.log(value / least) / span)
  })
}

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = (text) => String(text).replace(/[&<>"]/g, (character) => ENTITIES[character])
