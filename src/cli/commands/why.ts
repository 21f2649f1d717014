import type { Command } from 'commander'
import { nameOf, type Term, type Why, whyDocument } from '../../operations/index.js'
import { type CliContext, lookAtSystem } from '../context.js'
import type { Output } from '../output.js'
import { watchingSystem } from '../watch.js'
import { onDocument, refOf, watchOption, withDatabase } from './command.js'

export function registerWhy(program: Command, context: CliContext): void {
  const description =
    'say why no step of a document runs now: each condition with what it was judged by, and what helps'
  const command = onDocument(program, 'why', description).action((id: string, options) =>
    watchingSystem(context, lookAtSystem, options, async (system, output) => {
      const why = await whyDocument(system, refOf(id, options))
      if (options.json) output.json(why)
      else print(output, why)
    }),
  )
  withDatabase(watchOption(command), ['why shop', 'why shop --json', 'why shop --lifecycle api-gateway --watch'])
}

const HOLDS = (holds: Term['holds']): string => (holds === true ? 'yes' : holds === false ? 'NO' : '?')

function print(output: Output, { lifecycle, document, sentence, terms, action, seen }: Why): void {
  output.line(`${nameOf({ lifecycle, _id: document })}: ${sentence}`)
  output.line()
  output.table(
    ['holds', 'term', 'finding'],
    terms.map((term) => [HOLDS(term.holds), term.name, term.text]),
  )
  output.line()
  if (action) {
    const { command, text, prediction } = action
    output.line(`What helps: ${command} (${text})`)
    if (prediction)
      output.line(`${prediction.would === 'refused' ? 'It would be refused' : 'Then'}: ${prediction.sentence}`)
  }
  output.line(`Seen: ${seen} (an action with --seen does nothing if the document has changed since)`)
}
