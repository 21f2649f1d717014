import type { Command } from 'commander'
import { answerQuestion, idText, listQuestions, MOST_QUESTIONS, nameOf } from '../../operations/index.js'
import { fromNow } from '../../time/index.js'
import { byFrom, byOption, reasonOption } from '../by.js'
import { type CliContext, lookAtSystem, type Options, onSystem } from '../context.js'
import { printTable, watchingSystem } from '../watch.js'
import { onDocument, onOneMeant, print, watchOption, withDatabase } from './command.js'
import { isDryRun, predictable, printPredictions, seenFrom } from './predicted.js'

export function registerQuestions(program: Command, context: CliContext): void {
  const command = program
    .command('questions')
    .description('list the open questions, oldest first: what documents ask, of whom, and until when')
    .argument('[lifecycle]', 'the kind of document (default: all)')
    .option('--to <name>', 'only those that are meant for this one, or for nobody in particular')
    .action((lifecycle: string | undefined, options: Options & { to?: string }) =>
      watchingSystem(context, lookAtSystem, options, async (system, output) => {
        const { questions, more, now } = await listQuestions(system, { lifecycle, to: options.to })
        printTable(output, options, questions, {
          none: options.to === undefined ? 'nothing is asked' : `nothing is asked of ${options.to}`,
          columns: ['lifecycle', 'id', 'question', 'answers', 'to', 'asked', 'ends'],
          row: ({ options: answers, to, askedAt, deadline, onTimeout, times, ...one }) => [
            one.lifecycle,
            idText(one._id),
            short(`${one.question}${times > 1 ? ` (for the ${times}. time)` : ''}`),
            answers.join(', ') || 'any text',
            to.join(', ') || '-',
            fromNow(askedAt, now),
            deadline ? `${fromNow(deadline, now)}${onTimeout === null ? '' : ` (${onTimeout})`}` : '-',
          ],
        })
        for (const name of options.json ? [] : more)
          output.line(`there are more of ${name} than these ${MOST_QUESTIONS}, the oldest`)
      }),
    )
  withDatabase(watchOption(command), ['questions', 'questions order --watch', 'questions --to warehouse --json'])
}

const LONGEST = 100

function short(question: string): string {
  const [said = ''] = question.split('\n')
  return said.length > LONGEST ? `${said.slice(0, LONGEST - 3)}...` : said
}

export function registerAnswer(program: Command, context: CliContext): void {
  const answer = onDocument(program, 'answer', 'answer the question that a document asks; it goes on at once')
  const command = reasonOption(answer, 'why, for its history and its handler', 1_000)
    .argument('<option>', "one of the question's options; where it has none, any text")
    .action((id: string, option: string, options: Options & { reason?: string }) => {
      const answer = { option, by: byFrom(options), reason: options.reason }
      if (isDryRun(options)) return printPredictions(context, [id], options, { action: 'answer', ...answer })
      return onSystem(context, options, async (system) => {
        const request = { ...answer, ...seenFrom(options, [id]) }
        const done = await onOneMeant(context, id, options, (ref) => answerQuestion(system, ref, request))
        print(
          context,
          options,
          done,
          `${nameOf(done)}: '${done.option}' to '${done.question}', by ${done.by}; it is due now`,
        )
      })
    })
  withDatabase(predictable(byOption(command)), [
    'answer order-4711 yes',
    'answer order-4711 no --by ana --reason "out of stock"',
  ])
}
