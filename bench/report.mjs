/** One JSON object on standard output and nothing else: what programs read. */
export function printJson(figures) {
  process.stdout.write(`${JSON.stringify(figures)}\n`)
}

/** The same for people: a line for each figure; nested objects are flattened to `a.b`, lists joined. */
export function printTable(title, figures) {
  const rows = flat(figures)
  const width = Math.max(...rows.map(([name]) => name.length))
  console.log(`\n${title}`)
  for (const [name, value] of rows) console.log(`  ${name.padEnd(width)}  ${format(value)}`)
}

function flat(figures, prefix = '') {
  return Object.entries(figures).flatMap(([name, value]) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? flat(value, `${prefix}${name}.`)
      : [[`${prefix}${name}`, value]],
  )
}

function format(value) {
  if (Array.isArray(value)) return value.map(format).join('  ')
  return typeof value === 'number' ? value.toLocaleString('en-US', { maximumFractionDigits: 3 }) : String(value)
}
