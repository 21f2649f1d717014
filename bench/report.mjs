/** One JSON object on standard output and nothing else: what programs read. */
export function printJson(figures) {
  process.stdout.write(`${JSON.stringify(figures)}\n`)
}

/** The same for people: a line for each figure; nested objects are flattened to `a.b`, lists joined. */
export function printTable(title, figures, targets = []) {
  const rows = flat(figures)
  const width = Math.max(...rows.map(([name]) => name.length))
  const verdicts = new Map(targets.map((target) => [target.figure, verdictText(target)]))
  console.log(`\n${title}`)
  for (const [name, value] of rows) {
    const verdict = verdicts.get(name) ?? verdicts.get(name.replace(/\.worst$/, ''))
    console.log(`  ${name.padEnd(width)}  ${format(value)}${verdict ? `  (${verdict})` : ''}`)
  }
}

const verdictText = ({ verdict, least, aim }) =>
  verdict === 'aim'
    ? `aim of ${format(aim)} reached`
    : verdict === 'least'
      ? `${format(least)} reached, aim ${format(aim)}`
      : `missed: at least ${format(least)}, aim ${format(aim)}`

function flat(figures, prefix = '') {
  return Object.entries(figures).flatMap(([name, value]) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? flat(value, `${prefix}${name}.`)
      : [[`${prefix}${name}`, value]],
  )
}

function format(value) {
  if (Array.isArray(value)) return value.map(format).join('  ')
  if (typeof value === 'object' && value !== null) return JSON.stringify(value)
  return typeof value === 'number' ? value.toLocaleString('en-US', { maximumFractionDigits: 3 }) : String(value)
}
