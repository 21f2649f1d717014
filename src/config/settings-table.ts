import { SETTINGS } from './settings.js'

/** The table of docs/settings.md, from the schema itself. */
export function settingsTable(): string {
  const rows = SETTINGS.map(({ variable, flag, meaning, unit, fallback, special }) =>
    [`\`${variable}\``, `\`--${flag}\``, meaning, unit, fallback, special].map((cell) =>
      ` ${cell} `.replaceAll('|', '\\|'),
    ),
  )
  const head = [' variable ', ' flag ', ' meaning ', ' unit ', ' default ', ' special values ']
  return [head, head.map(() => ' --- '), ...rows].map((cells) => `|${cells.join('|')}|`).join('\n')
}
